"""Reproductions of the papers' tables and figures, and the closed forms that stand beside them.

Begin with `ha_tables.py`. It and `ring_scale.py` run the product's cores in virtual time; `figure10.py`,
`io_service.py`, `paged_state.py`, `state_latency.py`, `cec.py`, `flux.py`, `peer_ring.py` and `recovery_costs.py`
run real processes. The paper's numbers stand beside ours and are never used to make them. The product imports
nothing of this folder.
"""
