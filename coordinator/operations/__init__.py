"""The service behind the doors: asynchronous operations over `namespace` and `cluster`, one noun a file.

Begin with `files.py`, which holds them all, and `context.py`, which each is given; `core_driver.py` performs what
the core commands. Never imports `api` or `rpc`.
"""
