"""The data path: chunks written through pipelines and read from replicas, by effects that threads drive.

Begin with `file_writer.py` and `file_reader.py`. The only part of the client that `datanode` imports, since a
gateway is a client that lives in a datanode. Imports nothing else of the client.
"""
