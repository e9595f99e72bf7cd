"""Several disks as one store: their claim, state, metrics, scrubbing and balancing.

Begin with `disk_set.py`. Each disk has its own `store`. Nothing here knows about the network.
"""
