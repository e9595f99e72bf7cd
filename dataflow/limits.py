"""Limits and deadlines that several modules of dataflows share. Names contain their unit."""

from typing import Final

from peacefs.protocol.limits import MIB

# How long a node may be busy with one batch while only its process reports that it is alive. Then the node is
# considered hung.
dataflow_busy_s_max: Final = 60.0
# How often a node checks its timers.
dataflow_tick_s: Final = 0.05
dataflow_acknowledge_interval_s_max: Final = 60.0
dataflow_rows_bytes_max: Final = 256 * MIB
# Bytes read to find the last record of a log, or the schema of a segment.
stream_log_tail_bytes: Final = 64 * 1024
# Batches of one commit are joined into records of up to this size.
stream_log_record_bytes: Final = 1 * MIB
# How often a follower checks whether a log has grown.
stream_log_poll_s: Final = 0.05
# Memory for one unit's state. During a checkpoint there can be two copies of a page.
dataflow_state_bytes_max: Final = 8 * 1024 * MIB
dataflow_checkpoint_retry_s: Final = 1.0
# Maximum number of checkpoints per start of a unit.
dataflow_checkpoints_per_start_max: Final = 1_000_000
# Width in bits of the copy number within one start of a unit.
dataflow_copy_number_bits: Final = 36
# Maximum number of events per message to a standby.
dataflow_determinants_per_message_max: Final = 1024
# Maximum number of starts of a unit under one controller.
dataflow_incarnations_per_run_max: Final = 1000
ring_checkpoint_s: Final = 2.0
# Upper bound on the difference between mappers' clocks and on the delay of a tuple: the paper's L_n.
ring_latency_s: Final = 0.015
# A neighbour that is silent for `ring_silence_s` is dead. If the connection to it broke, as it does when the
# process dies, `ring_suspect_s` is enough. On a busy machine a live process can be silent for longer than that.
ring_silence_s: Final = 3.0
ring_suspect_s: Final = 0.5
