"""Recovery techniques as users write them: `SGuard(interval_s=1)`, `CEC()`, `Flux()` and so on.

Each function checks what it is given, and returns a declared plan (`recovery/technique.py`). `admission.py` says
whether a plan can run a query. Pure.
"""
