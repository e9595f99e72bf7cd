"""Recovery techniques as users write them: `SGuard(interval_s=1)`, `CEC()`, `Flux()` and so on.

Each function checks its arguments, and returns a declared plan (`recovery/technique.py`). `admission.py` decides
whether a plan can run a query. Pure.
"""
