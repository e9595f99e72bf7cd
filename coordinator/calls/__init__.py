"""The operations on names, each declared once in `name_table.py`.

`rpc` (frames), `api` (WebHDFS) and the audit log read the table, and this package must not import them. To add an
operation, add a row here, a function below `namespace/`, and a test.
"""
