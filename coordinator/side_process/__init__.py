"""Work that would hold the event loop for long, done by processes beside the coordinator.

Begin with `runner.py`. `planner` answers dry runs, `checkpoint_inspector` reads checkpoints.
"""
