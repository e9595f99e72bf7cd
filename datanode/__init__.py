"""Chunk store, replication pipeline, heartbeats and the WebHDFS data side.

Begin with `service.py`, which wires the parts. Of the client it imports `client.transfer` alone, and nothing of
the coordinator: messages are all that the two share.
"""
