"""The coordinator's framed door: sessions of datanodes, agents and clients.

Begin with `server.py` and `dispatch.py`. Bytes in, calls of `operations` and events for the cores out.
"""
