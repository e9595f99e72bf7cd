"""The datanode: chunk store, replication pipeline, heartbeats, and the data side of WebHDFS.

Begin with `service.py`, which connects the parts; `process.py` runs it. Of the client, this package imports only
`client.transfer`. It imports nothing of the coordinator, with which it shares only messages.
"""
