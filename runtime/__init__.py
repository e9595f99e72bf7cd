"""I/O and time: effects, the drivers that perform them, connections and TLS.

Start with `effects`, then `thread_driver`. This package imports only `protocol`.
"""
