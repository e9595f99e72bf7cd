"""The coordinator's background tasks: load chunks, tick the core, reclaim, advance the GC floor.

Begin with `tasks.py`; `runner.py` runs the tasks on the event loop. The core decides what a tick does.
"""
