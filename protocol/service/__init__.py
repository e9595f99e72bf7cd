"""Everything that service processes share: the HTTP server, metrics, signals, lifeline and loop watchdog.

Begin with `process.py`. Knows no role.
"""
