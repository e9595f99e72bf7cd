"""Read Spark's streaming checkpoints from their files: show, verify, repair, roll back, copy and prune them.

Begin with `batches.py`. `formats/` reads the files; `commands/` holds the commands of `peacefs checkpoint`.
Modules that need Spark say so. The layout and the formats are those that Spark 3.5 to 4.3 write.
"""
