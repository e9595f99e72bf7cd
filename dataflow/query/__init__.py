"""What users write: queries, streams, expressions; and the network that a query is.

Begin with `query.py`. Everything that is wrong with a query is said when it is written. Pure.
"""
