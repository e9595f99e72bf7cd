"""Data structures on pages (SGuard 4.3). Each is a page set with a Super Page, and fields rebuilt from it.

Begin with `structure.py`, then `unordered_map.py`. Imports `pages`, `kernels`, `protocol`, NumPy, PyArrow.
"""
