"""The door for clients of HDFS: Hadoop's RPC, as a NameNode answers it (decision 81).

Begin with `method_table.py`, the methods by name. `server.py` has the connections, `call.py` one call on its way.
The methods know the messages of `protocol/hadoop` and call `operations/`, as the other doors do; no rule of the
namespace is here.
"""
