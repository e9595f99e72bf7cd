"""Limits and deadlines that several modules of a datanode share; the unit is the last word of each name."""

from typing import Final

from peacefs.protocol.limits import KIB

# The most records that one append and one fsync of a segment carry.
segment_batch_records_max: Final = 256
# A disk that takes longer than this over one group of small chunks is taken for broken.
disk_timeout_s: Final = 30.0
# A file whose body comes through a gateway is shown, and what has come of it is flushed, when it has paused for so
# long, or when its oldest byte has waited for the longer time.
upload_pause_s: Final = 1.0
reregister_backoff_max_s: Final = 5.0
# A datanode that balances its own disks looks so often whether it still should.
disk_balance_look_s: Final = 0.5
# A small replica costs a seek and a turn of the interpreter: it counts for as much as this.
scrub_cost_bytes_min: Final = 64 * KIB
# A scrubber that rests looks up this often; a replica that the disk failed to read is tried once more after it.
scrub_rest_s: Final = 30.0
gateway_local_read_timeout_s: Final = 1.0
gateway_drain_s: Final = 7.0
gateway_cut_off_s: Final = 1.0
gateway_downloads_max: Final = 256
