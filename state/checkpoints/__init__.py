"""Write pages to a store while operators go on, and load them again (SGuard 4.4).

Begin with `checkpointer.py`; `store.py` is the port that its adapters fill: a directory, memory, peacefs. Knows
`pages`, never a structure.
"""
