"""A coordinator that stands by until it leads, and that stops when it was replaced (decision 47).

Begin with `leadership.py`, which says who leads as far as is known here; `service.py` follows the journal, renews
the lease and takes over; `door.py` answers clients while another one leads, `relay.py` those who know one address
alone; `joining.py` prepares a store.
"""
