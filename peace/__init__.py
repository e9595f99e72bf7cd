"""Peace: placement and scheduling policies, their simulator, and dry runs (SGuard, section 5).

Start with `policies/interface.py`. Pure: no clock, no I/O, no global randomness. Imports `topology`.
"""
