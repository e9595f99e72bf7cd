"""Advice on which recovery technique fits a query, from its load (measured or given) and closed forms.

Begin with `advice.py`. Everything is pure except `measure.py`, which plays a sample of rows on one node in virtual
time. Code that runs queries does not depend on this package.
"""
