"""The runtime of participants: effects, threads, the reactor, connections and their pool, files on disks.

Begin with `effects.py` and `thread_driver.py`. Imports the rest of `protocol` alone.
"""
