"""Namespace, chunks, membership, repair, and the services over them. Knows nothing of datanodes but messages."""
