"""`peacefs checkpoint`: inspect, change, move, rehearse, runs.

Begin with `inspect.py`. Arguments in, tables or JSON out; what is decided is in the modules above.
"""
