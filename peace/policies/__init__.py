"""The policies that choose pipelines and order writers, from HDFS's placement to the express policy.

Begin with `interface.py`. Pure; `algorithm1.py` is the paper's min-cost-flow algorithm.
"""
