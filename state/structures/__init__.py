"""Data structures on pages (SGuard 4.3): a page set with a Super Page, and what can be rebuilt from its pages.

Begin with `structure.py`, then `unordered_map.py`. Imports `pages`, `kernels` and `protocol`, NumPy and PyArrow;
never a store of checkpoints.
"""
