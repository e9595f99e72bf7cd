"""The peer ring (Kumbhare and others, Streaming MapReduce, V to VII): a keyed stage on a ring of reducers.

Begin with `view.py` (tokens, intervals, who holds what), then `mapper.py`, `fragment.py` and `reducer.py`. Pure:
events and `now` in, effects out. Uses `model` and, for the pages of `paged_table.py`, `peacefs.state`. Must not
import `core`, `techniques` or `hosts`.
"""
