"""REST under `/v1`, with FastAPI; one module per subject.

Begin with `app.py`, which puts the routes together. Calls `operations`; knows neither SQL nor frames.
"""
