"""Make the values that the web page shows, from what the coordinator knows. Pure functions; begin at `cluster.py`.

Must not import FastAPI, time or sockets: `live` brings the values to viewers, `rest/` has the routes.
"""
