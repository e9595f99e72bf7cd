"""Namespace, chunks, membership, scheduling, and the services over them.

Begin with `core.py`, which decides, `assembly.py`, which builds a coordinator without its sockets, and
`service.py`, which adds them; `process.py` runs it. `api` and `rpc` are the entry points and call `operations`.
`cluster`, `scheduling` and `supervision` contain the cores of which `core.py` is composed. This package knows
datanodes only by their messages.
"""
