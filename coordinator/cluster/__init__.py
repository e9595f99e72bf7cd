"""The core of the cluster: who is there, which replica is where, what to repair, move or delete.

Begin with `core.py`. Pure: events and `now` in, commands for datanodes out. Imports no time, asyncio, socket or
logging, and neither SQL nor any door.
"""
