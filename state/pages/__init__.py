"""The page manager (SGuard 4.1): memory cut into pages, page sets, flags, and what a checkpoint needs of them.

Begin with `manager.py`. Pure but for the memory itself: no clock, no threads, no files. Imports `kernels.places`
and `protocol` alone, and NumPy.
"""
