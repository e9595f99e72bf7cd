"""Processes beside the coordinator, for work that would block its event loop.

Begin with `runner.py`. `planner` answers dry runs, `checkpoint_inspector` reads checkpoints.
"""
