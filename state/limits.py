"""Limits and deadlines that several modules of paged state share. Each name ends with its unit."""

from typing import Final

from peacefs.protocol.limits import MIB

# Default maximum of rows per batch that a scan yields.
state_scan_records: Final = 65_536
# If a smaller share of an older checkpoint's pages is still needed, the next checkpoint writes those pages again.
state_live_share_min: Final = 0.5
state_index_bytes_max: Final = 512 * MIB
