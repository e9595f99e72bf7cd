"""Limits and deadlines that several modules of a datanode share. Names contain their unit."""

from typing import Final

from peacefs.protocol.limits import KIB

# Maximum number of records that are appended to a segment with one write and one fsync.
segment_batch_records_max: Final = 256
# A disk that takes longer than this to write one group of small chunks is considered broken.
disk_timeout_s: Final = 30.0
# When an upload through a gateway pauses for this long, the file becomes visible and the bytes received so far are
# flushed.
upload_pause_s: Final = 1.0
reregister_backoff_max_s: Final = 5.0
# How often a datanode that balances its own disks checks whether it should continue.
disk_balance_look_s: Final = 0.5
# A small replica costs a seek and some interpreter time, so the rate limit counts it as at least this many bytes.
scrub_cost_bytes_min: Final = 64 * KIB
# How often an idle scrubber looks for work. A replica that could not be read is tried once more after this time.
scrub_rest_s: Final = 30.0
gateway_local_read_timeout_s: Final = 1.0
gateway_drain_s: Final = 7.0
gateway_cut_off_s: Final = 1.0
gateway_downloads_max: Final = 256
