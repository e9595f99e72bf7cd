"""What every service process shares: its HTTP server, metrics, signals, lifeline and loop watchdog.

Begin with `process.py`. Knows no role.
"""
