"""Limits and deadlines that several modules of dataflows share; the unit is the last word of each name."""

from typing import Final

from peacefs.protocol.limits import MIB

# A node that is busy with one batch says so long that its process is alive; then it is taken for hung.
dataflow_busy_s_max: Final = 60.0
# A node looks at the time so often.
dataflow_tick_s: Final = 0.05
dataflow_acknowledge_interval_s_max: Final = 60.0
dataflow_rows_bytes_max: Final = 256 * MIB
# So much is read to find the last record of a log, or the schema of a segment.
stream_log_tail_bytes: Final = 64 * 1024
# Batches of one commit are joined into records of up to so many bytes.
stream_log_record_bytes: Final = 1 * MIB
# So often a follower looks whether a log has grown.
stream_log_poll_s: Final = 0.05
# Memory of one unit's state, and the size of its pages. During a checkpoint there can be two copies of a page.
dataflow_state_bytes_max: Final = 8 * 1024 * MIB
dataflow_checkpoint_retry_s: Final = 1.0
# Checkpoints of one start of a unit.
dataflow_checkpoints_per_start_max: Final = 1_000_000
# The numbers of copies for a standby that one start of a unit can have, as bits.
dataflow_copy_number_bits: Final = 36
# Events of one message to a standby.
dataflow_determinants_per_message_max: Final = 1024
# Starts of a unit under one controller.
dataflow_incarnations_per_run_max: Final = 1000
ring_checkpoint_s: Final = 2.0
# Clocks of mappers may differ by so much, and a tuple be on its way for so long: the paper's L_n.
ring_latency_s: Final = 0.015
# A neighbour that was silent for so long is dead; less when the connection to it broke, as when its process dies.
# A machine that is busy may keep a process waiting for longer than the latter.
ring_silence_s: Final = 3.0
ring_suspect_s: Final = 0.5
