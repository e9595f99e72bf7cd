"""Everything for Spark users: session settings, runs, drivers' reports, checkpoints, supervision, the demo.

Begin with `session.py`. Knows `client` and `protocol`; never the inside of the coordinator.
"""
