"""The I/O service for programs that write their own checkpoints (SGuard, section 4): parts, manifests, pages.

Begin with `attempt.py`, which writes one checkpoint, and `reader.py`, which reads one. Uses
`client.transfer` and `client.control`. Knows nothing of Spark's formats.
"""
