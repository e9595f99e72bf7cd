"""The data server: receives chunks as a hop of a write pipeline, and sends replicas to readers.

Begin with `hop.py` and `server.py`. Participants yield effects; threads or a reactor perform them.
"""
