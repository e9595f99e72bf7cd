"""Data structures on pages (SGuard 4.3). Each is a page set with a Super Page, plus what can be rebuilt from the
pages.

Begin with `structure.py`, then `unordered_map.py`. Imports `pages`, `kernels`, `protocol`, NumPy and PyArrow,
never a store of checkpoints.
"""
