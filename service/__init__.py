"""Parts of every service process: HTTP server, metrics, logs, traces and signals.

Start with `process` and `http_server`. This package imports only `protocol` and `runtime`.
"""
