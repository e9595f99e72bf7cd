"""The peer ring (Kumbhare and others, Streaming MapReduce, V to VII): a keyed stage on a ring of reducers.

Begin with `view.py` (tokens, intervals, who holds what), then `mapper.py`, `fragment.py` and `reducer.py`. Pure:
events and `now` in, effects out. Only `program.py`, which takes a query apart, knows operators and networks. Of
`core` the ring uses `attention.py` and `number_ranges.py`. Must not import `techniques` or `hosts`.
"""
