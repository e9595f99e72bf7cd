"""Compute the values that the web page shows, from the coordinator's state. Pure; begin with `cluster.py`.

Must not import FastAPI, time or sockets: `live` sends the values to viewers, `rest/` has the routes.
"""
