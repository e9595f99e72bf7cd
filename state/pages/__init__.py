"""The page manager (SGuard 4.1): memory divided into pages, page sets, flags, and snapshots for checkpoints.

Begin with `manager.py`. Pure except for the memory itself: no clock, threads or files. Imports only
`kernels.places`, `protocol` and NumPy.
"""
