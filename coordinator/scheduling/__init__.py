"""The scheduling service's core: write sets, grants, reads of recovering queries, statistics (SGuard, section 5).

Begin with `scheduler.py`. Pure, like `cluster`. The policies themselves are in `peace`.
"""
