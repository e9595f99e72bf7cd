"""A cluster as a directory of this machine, over FUSE. Start reading at `tree.py`; `content.py` has the decisions.

Imports the client's file system; only `session.py` knows FUSE.
"""
