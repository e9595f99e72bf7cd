"""WebHDFS's data side: a client that lives in a datanode, with bodies in and files out.

Begin with `app.py`. Writes and reads through `client.transfer`, or from its own disks where a replica is there.
"""
