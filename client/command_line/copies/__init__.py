"""Copy files into the cluster, out of it and within it: `put`, `get`, `cat`, `tail`, `cp`.

Start with `upload.py`. Knows nothing of the command declarations in `file_commands.py`.
"""
