"""What each service process needs: the HTTP server, metrics, logs, traces and signals.

Start with `process` and `http_server`. This package imports `protocol` and `runtime` alone.
"""
