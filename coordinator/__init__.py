"""Namespace, chunks, membership, scheduling, and the services over them.

Begin with `service.py`, which wires the parts. `api` and `rpc` are the doors, `operations` what they call;
`cluster`, `scheduling` and `supervision` are pure cores. Knows nothing of datanodes but messages.
"""
