"""Advice on which recovery technique fits a query: its load, measured or told, and the closed forms.

Begin with `advice.py`. Pure but for `measure.py`, which plays a sample of rows on one node in virtual time.
Nothing that runs a query knows of it.
"""
