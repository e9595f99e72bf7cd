"""Benchmarks: each is compared with a peer or a physical limit, alternating in one run.

`python -m benchmarks` runs all.
"""
