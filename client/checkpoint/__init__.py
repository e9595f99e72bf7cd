"""The I/O service for programs that checkpoint by themselves (SGuard, section 4): parts, manifests, pages.

Begin with `attempt.py`, which writes one checkpoint, and `reader.py`, which reads one back. Uses
`client.transfer` and `client.control`; knows nothing of Spark's formats.
"""
