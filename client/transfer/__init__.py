"""The data path: chunks are written through pipelines and read from replicas, by participants that threads drive.

Begin with `file_writer.py` and `file_reader.py`. This is the only part of the client that `datanode`
imports, since a gateway is a client inside a datanode. It imports nothing else of the client.
"""
