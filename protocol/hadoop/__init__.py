"""The messages of HDFS's own protocols, for clients that know nothing of peacefs (decision 81).

Begin with `hdfs.proto`: what the protocols for names (`namenode.proto`, `attributes.proto`) and for data
(`datatransfer.proto`) share. The modules ending in `_pb2` are generated; CONTRIBUTING.md says how.
"""
