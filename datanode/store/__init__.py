"""The chunk store of one disk: large chunks as files, small ones in segments; recovery, compaction, reads.

Begin with `chunk_store.py`; `interface.py` lists a store's methods. Nothing here knows about the network.
"""
