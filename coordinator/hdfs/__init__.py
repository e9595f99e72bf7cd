"""The server for HDFS clients: Hadoop's RPC, as a NameNode answers it (decision 81).

Begin with `method_table.py`, which lists the methods by name. `server.py` accepts connections, `call.py` serves
one call. The methods know the messages of `protocol/hadoop` and call `operations/`, like the other servers of the
coordinator. They contain no rules of the namespace.
"""
