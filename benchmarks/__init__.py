"""Benchmarks: each beside a peer or a physical limit, in one run, alternating. `python -m benchmarks` runs all."""
