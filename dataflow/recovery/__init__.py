"""How units are recovered, as values: the description of a technique, without the code that implements it.

Begin with `technique.py`. Users create techniques with the functions in `techniques/`; `core/` interprets them.
Pure.
"""
