"""Simulates policies on a fluid model of links and disks, and compares them (SGuard, section 6).

Start with `simulate.py`. Pure: virtual time, seeded randomness.
"""
