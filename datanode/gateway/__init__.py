"""The data side of WebHDFS: a client inside a datanode that receives request bodies and sends files.

Begin with `app.py`. Writes go through `client.transfer`. Reads do too, unless a replica is on this datanode.
"""
