"""The core of the cluster: which datanodes are alive, where replicas are, which to copy, move or delete.

Begin with `core.py`. Pure: events and `now` in, commands for datanodes out. Imports no time, asyncio, socket,
logging or SQL, and neither `api` nor `rpc`.
"""
