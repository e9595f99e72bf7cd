"""Recovery techniques: what is acknowledged and when, what rows are kept for, what a failure leads to.

Begin with `interface.py`. Pure.
"""
