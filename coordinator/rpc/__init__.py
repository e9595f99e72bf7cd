"""The coordinator's framed door: sessions of datanodes, agents and clients.

Begin with `node_service.py` and `dispatch.py`. Bytes in, calls of `operations` and events for the core out.
"""
