"""The policies that choose pipelines and order writers, from HDFS's placement to the express policy.

Start with `interface.py`. Pure. `algorithm1.py` is the paper's algorithm, by shortest paths.
"""
