"""Limits and deadlines that several modules of paged state share; the unit is the last word of each name."""

from typing import Final

from peacefs.protocol.limits import MIB

# Rows of a batch that a scan yields, at most, unless the caller says otherwise.
state_scan_records: Final = 65_536
# An older checkpoint of whose pages a smaller share is still needed is written again with the next one.
state_live_share_min: Final = 0.5
state_index_bytes_max: Final = 512 * MIB
