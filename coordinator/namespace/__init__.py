"""HDFS's answers: synchronous functions of a transaction, a request and now.

Begin with `operations.py`. Loads what it needs by index; knows no wire, no event loop and no datanode.
"""
