"""Operators: batches in, batches out. State is kept in structures that the unit provides. No I/O, no clock.

Begin with `interface.py`. An operator's output depends only on its input rows and time events, never on how rows
were cut into batches. So a replay with other batches gives the same output.
"""
