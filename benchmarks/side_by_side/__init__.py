"""All recovery techniques, and Spark's own queries, under one load and one schedule of failures.

Begin with `benchmarks/recovery.py`, the command. `queries.py` has the two queries, their rows and what has to come
out; `contest.py` plays one technique on one host; `timeline.py` and `verdict.py` look at what came out and when;
`usage.py` counts processor time, bytes and memory.
"""
