"""HDFS's data transfer protocol, for clients without the peacefs client (decision 82).

Begin with `transfer_server.py`. To write a block, this package writes chunks of a file, as the gateway does; the
token contains the lease. To read a block, it reads one chunk. This package uses neither file names nor the
gateway.
"""
