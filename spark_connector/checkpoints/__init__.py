"""Spark's streaming checkpoints, read from their files: what is there, whether it is whole, what may be done.

Begin with `batches.py`; `formats/` reads the files, `commands/` are `peacefs checkpoint`. Nothing here needs
Spark, except what says so. The layout and the formats are those that Spark 3.5 to 4.3 write.
"""
