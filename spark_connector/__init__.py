"""Everything for Spark users: session settings, runs, query reports, checkpoints, supervision, and the demo.

Begin with `session.py`. Imports `client` and `protocol`, never the inside of the coordinator.
"""
