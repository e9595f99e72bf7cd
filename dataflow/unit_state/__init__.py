"""State of operators: a port, and its in-memory twin.

Begin with `interface.py`. Operators create structures by name, and find in them the contents from a checkpoint.
They know nothing of checkpoints (SGuard, section 4.4). Pure.
"""
