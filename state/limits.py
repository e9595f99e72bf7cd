"""Limits and deadlines that several modules of paged state share. Names contain their unit."""

from typing import Final

from peacefs.protocol.limits import MIB

# Default maximum number of rows per batch of a scan.
state_scan_records: Final = 65_536
# If less than this share of an older checkpoint's pages is still needed, the next checkpoint rewrites those pages.
state_live_share_min: Final = 0.5
state_index_bytes_max: Final = 512 * MIB
