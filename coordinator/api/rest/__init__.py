"""REST under `/v1`, one module a subject, in FastAPI.

Begin with `app.py`, which puts the routes together. Calls `operations`; knows no SQL and no frames.
"""
