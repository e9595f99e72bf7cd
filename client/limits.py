"""Limits and deadlines that several modules of the client share; the unit is the last word of each name."""

from typing import Final

from peacefs.protocol.limits import MIB, control_call_timeout_s, startup_hold_s

read_piece_bytes: Final = 1 * MIB
# A client that wants a run renews it so often; after the longer silence it ends.
balance_renewal_s: Final = 0.5
# A producer may be so far ahead of the writer of its file.
stream_buffer_bytes: Final = 4 * MIB
# The client retries for so long when the coordinator refuses for now, or is away after it has answered before.
client_retry_s: Final = 20.0
client_backoff_max_s: Final = 2.0
# One answer may take this long: CREATE and OPEN are held while the coordinator waits for reports.
client_answer_timeout_s: Final = startup_hold_s + control_call_timeout_s
# Calls of one asynchronous client that are under way at once.
async_calls_at_once_max: Final = 32
local_datanodes_default: Final = 4
local_stop_timeout_s: Final = 5.0
