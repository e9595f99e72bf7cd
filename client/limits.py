"""Limits and deadlines that several modules of the client share. Names contain their unit."""

from typing import Final

from peacefs.protocol.limits import MIB, control_call_timeout_s, startup_hold_s

read_piece_bytes: Final = 1 * MIB
# How often a client renews a balancing run. The run ends after `balance_silence_s` without a renewal.
balance_renewal_s: Final = 0.5
# How far a producer may be ahead of the writer of its file.
stream_buffer_bytes: Final = 4 * MIB
# How long the client retries if the coordinator answers "try again" or, having answered before, is unreachable.
client_retry_s: Final = 20.0
client_backoff_max_s: Final = 2.0
# Deadline for one answer. A starting coordinator holds CREATE and OPEN until its datanodes have reported.
client_answer_timeout_s: Final = startup_hold_s + control_call_timeout_s
# Concurrent calls of one asynchronous client.
async_calls_at_once_max: Final = 32
local_datanodes_default: Final = 4
local_stop_timeout_s: Final = 5.0
