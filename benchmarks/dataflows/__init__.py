"""Tools with which tests and benchmarks run dataflows.

`seeded.py` and `seeded_ring.py` run whole queries in one thread and in virtual time, with failures.
`comparison.py` classifies the output after a recovery. `link_traffic.py` and `row_counts.py` count what real nodes
send.
"""
