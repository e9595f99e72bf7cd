"""Runs policies on a fluid model of links and disks, and compares them (SGuard, section 6).

Begin with `simulate.py`. Pure: virtual time, a seed.
"""
