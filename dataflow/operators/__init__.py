"""Operators: batches in, batches out, state in the structures that they are given. No I/O, no clock.

Begin with `interface.py`. An operator's rows depend on its input rows and on time events alone, never on how rows
were cut into batches, so that a replay in other batches gives the same.
"""
