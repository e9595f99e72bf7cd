"""The operations on names, each declared once: `name_table.py`.

The doors, `rpc` for frames and `api` for WebHDFS, carry out what stands in the table, and so does the audit log. A
new operation is a row here, a function below `namespace/`, and a test. Must not import a door.
"""
