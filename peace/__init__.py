"""Peace: placement and scheduling policies, their simulator, and dry runs (SGuard, section 5).

Begin with `policies/interface.py`. Pure: no clock, no I/O, no global randomness; knows `topology`.
"""
