"""State of operators: a port, and its twin in memory.

Begin with `interface.py`. Operators create structures by name and find in them what a checkpoint held; they know
nothing of checkpoints (SGuard, section 4.4). Pure.
"""
