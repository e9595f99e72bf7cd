"""What tests and reproductions run dataflows with.

`seeded.py` and `seeded_ring.py` play whole queries in one thread and in virtual time, with failures.
`comparison.py` judges what a recovery did to the output. `link_traffic.py` and
`row_counts.py` count what real nodes send.
"""
