"""Queries, streams and expressions as users write them, and the network that a query becomes.

Begin with `query.py`. Every error in a query is raised by the call that causes it. Pure.
"""
