"""The commands of `peacefs checkpoint`: inspect, change, move, rehearse, runs.

Begin with `inspect.py`. Commands only parse arguments and print tables or JSON; the modules above decide.
"""
