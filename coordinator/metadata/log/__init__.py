"""The log of the metadata. One write and one sync make a commit durable. Begin with `segments.py`."""
