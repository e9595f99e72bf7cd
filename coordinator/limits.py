"""Limits and deadlines that several modules of the coordinator share. Names contain their unit."""

from typing import Final

from peacefs.protocol.limits import KIB, MIB

path_characters_max: Final = 8000
# HDFS: dfs.namenode.fs-limits.max-directory-items.
directory_entries_max: Final = 1_048_576
list_page_entries: Final = 1000
# Maximum number of entries of a tree that are read at once. A turn of the event loop reads at most twice as many.
# `python -m benchmarks.loop_holds` measures the turns.
tree_entries_per_turn: Final = 100
# Default memory for names.
names_memory_bytes_default: Final = 1024 * MIB
# HDFS: dfs.namenode.snapshot.max.limit.
snapshots_per_directory_max: Final = 65536
# Maximum number of pairs that one ExchangePaths call swaps; they are swapped in one commit.
exchange_pairs_max: Final = 16
# Concurrent probe chunks, which measure the network and belong to no file.
probes_max: Final = 256
min_replication: Final = 1
concat_sources_max: Final = 1000
# Replicas of deleted or replaced files are kept for this long, for readers that have the file open.
freed_chunks_kept_s: Final = 10.0
# An unused grant lapses after this time. The nodes of its pipeline are then asked for the stream, once per this
# interval. The grant's capacity is released when every node has denied the stream.
grant_open_s: Final = 30.0
write_set_chunks_max: Final = 10_000
heartbeat_late_s: Final = 2.0
suspect_after_s: Final = 3.0
# How long an unconfirmed replica counts: longer than a heartbeat can be under way.
unconfirmed_replica_kept_s: Final = 10.0
repair_timeout_s: Final = 120.0
proof_nonce_bytes: Final = 32
# Over-replicated chunks examined per tick, before other work gets its turn.
surplus_chunks_per_tick: Final = 300
lost_replicas_per_turn: Final = 1000
# Small enough that a step holds the event loop for one or two milliseconds.
reclaim_entries_per_commit: Final = 50
# How long, and how many, ended grants are remembered for the time line.
grant_history_s: Final = 300.0
grant_history_max: Final = 2000
tick_interval_s: Final = 0.25
link_at_once_bytes: Final = 4 * KIB
backup_block_bytes: Final = 256 * KIB
# A restored database advances its epoch by a random number up to this. If the same backup is restored twice, the
# two coordinators are therefore unlikely to draw the same numbers.
restore_epoch_jump_max: Final = 4096
journal_read_bytes_max: Final = 8 * MIB
# No other coordinator may lead until the leader has been silent for this long.
leader_lease_s: Final = 2.0
# How often a standby polls the journal for new entries and for the current leader.
standby_poll_interval_s: Final = 0.05
# Interval in which a coordinator that cannot start or answer yet looks for a leader.
leader_poll_interval_s: Final = 0.1
journal_unsure_max_s: Final = 30.0
# How long a standby holds requests while there is no leader, before it asks the client to retry.
takeover_hold_s: Final = 20.0
# A repeated rename is recognised as the same rename within this time, in case the first answer was lost.
rename_memory_s: Final = 3600.0
# A listing page reports the number of remaining entries, counted up to this limit.
list_remaining_max: Final = 10_000
link_backlog_bytes_max: Final = 64 * MIB
# Concurrent HTTP requests in the coordinator, and how many of them may wait for it to become ready.
http_requests_in_flight_max: Final = 3072
startup_waiting_max: Final = 2048
bearer_token_min_s: Final = 60.0
granted_token_max_s: Final = 86_400.0
# Lifetime of the token of a supervised query's run. Its agent gets a new one after half of it.
run_token_s: Final = 7 * 86_400.0
# HDFS: dfs.namenode.delegation.token.max-lifetime and .renew-interval.
delegation_token_max_s: Final = 7 * 86_400.0
