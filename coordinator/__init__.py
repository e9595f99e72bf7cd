"""Namespace, chunks, membership, scheduling, and the services over them.

Begin with `core.py`, which decides, `assembly.py`, which puts a coordinator together without its doors, and
`service.py`, which opens them; `process.py` begins it. `api` and `rpc` are the doors, `operations` what they call;
`cluster`, `scheduling` and `supervision` hold the cores that `core.py` is composed of. Knows nothing of datanodes
but messages.
"""
