"""How bytes and time move: effects, the drivers that perform them, connections and TLS.

Start with `effects`, then `thread_driver`. This package imports `protocol` alone.
"""
