"""Simulations of papers' tables and figures: the cores that run for real, in virtual time with costs.

Begin with `ha_results.py`, HA's section 7. The paper's numbers stand beside ours and are never used to make them.
"""
