"""Write pages to a store while operators continue, and load them again (SGuard 4.4).

Begin with `checkpointer.py`. `store.py` is the interface of stores; its adapters are a directory, memory and
peacefs. Imports `pages`, never a structure.
"""
