"""A coordinator that stands by until it leads, and that stops when another one replaces it (decision 47).

Begin with `leadership.py`, which knows who leads. `service.py` follows the journal, takes over and renews the
lease. `door.py` answers clients while another coordinator leads, `relay.py` those that know only one address.
`joining.py` prepares a store.
"""
