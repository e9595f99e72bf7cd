"""HDFS's data transfer protocol, for clients that know nothing of peacefs (decision 82).

Begin with `transfer_server.py`. A block is written as the gateway writes a body: as chunks of a file whose lease
is in the token. A block that is read is a chunk. This package knows nothing of names and of the gateway.
"""
