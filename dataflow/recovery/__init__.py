"""How units are recovered, as values: what a technique is, without any of the code that does it.

Begin with `technique.py`. Users write techniques by the functions in `techniques/`; `core/` reads them. Pure.
"""
