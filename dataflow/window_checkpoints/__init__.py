"""Continuous eventual checkpoints: the state of a unit as checkpoints of single windows (CEC, II and III).

Begin with `windowed_state.py`. `control_tuples.py` defines the contents of the log. `footprints.py` knows which
tuple each open window would be loaded from. `extent.py` decides which windows get a newer tuple. Pure: time and
the log are passed in.
"""
