"""What a Spark user needs: session settings, runs, what drivers report, checkpoints, supervision, the demo.

Begin with `session.py`. Knows `client` and `protocol`; never the inside of the coordinator.
"""
