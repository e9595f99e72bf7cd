"""The coordinator's background tasks: load chunks, tick the cores, reclaim, advance the GC floor.

Begin with `tasks.py`. Runs on the event loop; what it does per tick is decided in the cores.
"""
