"""The service behind the doors: asynchronous operations over `namespace` and `cluster`, one noun per file.

Begin with `files.py`, which holds all operations, and `context.py`, which each operation gets. `core_driver.py`
performs the core's commands. This package never imports `api` or `rpc`.
"""
