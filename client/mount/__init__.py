"""A cluster mounted as a local directory, over FUSE.

Start reading at `tree.py`; `content.py` makes the decisions. Imports the client's file system; only `session.py`
depends on FUSE.
"""
