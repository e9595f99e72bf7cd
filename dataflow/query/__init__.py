"""Queries, streams and expressions, as users write them; and the network that a query is.

Begin with `query.py`. Everything that is wrong with a query is said when it is written. Pure.
"""
