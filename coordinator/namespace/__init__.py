"""HDFS's outcomes, as synchronous functions of a transaction, a request and the time.

Begin with `operations.py`. This package looks rows up by index. It knows no wire format, event loop or datanode.
"""
