"""Limits and deadlines that several modules of the coordinator share; the unit is the last word of each name."""

from typing import Final

from peacefs.protocol.limits import KIB, MIB

path_characters_max: Final = 8000
# HDFS: dfs.namenode.fs-limits.max-directory-items.
directory_entries_max: Final = 1_048_576
list_page_entries: Final = 1000
# HDFS: dfs.namenode.snapshot.max.limit.
snapshots_per_directory_max: Final = 65536
# Pairs of names that trade places in one commit.
exchange_pairs_max: Final = 16
# Chunks that measure the network at once; what is measured is not in any file.
probes_max: Final = 256
min_replication: Final = 1
concat_sources_max: Final = 1000
# The replicas of a file that was deleted or replaced stay for those who have it open, up to this many chunks.
freed_chunks_kept_s: Final = 10.0
# A grant that was not used within this time lapses. It gives its capacity back when every node of its pipeline
# denies the stream; they are asked from then on, this often.
grant_open_s: Final = 30.0
write_set_chunks_max: Final = 10_000
heartbeat_late_s: Final = 2.0
suspect_after_s: Final = 3.0
# An unconfirmed replica counts for so long: longer than a heartbeat can be under way.
unconfirmed_replica_kept_s: Final = 10.0
repair_timeout_s: Final = 120.0
proof_nonce_bytes: Final = 32
# Chunks with a replica too many that are looked at before others get their turn, and such of them as have to wait.
surplus_chunks_per_tick: Final = 300
lost_replicas_per_turn: Final = 1000
reclaim_entries_per_commit: Final = 500
# Grants that have ended are remembered for the time line, so many and for so long.
grant_history_s: Final = 300.0
grant_history_max: Final = 2000
tick_interval_s: Final = 0.25
link_at_once_bytes: Final = 4 * KIB
backup_block_bytes: Final = 256 * KIB
# A restored store moves its epoch by up to this: restored again, it hardly meets the same numbers.
restore_epoch_jump_max: Final = 4096
journal_read_bytes_max: Final = 8 * MIB
# Nobody else may lead until a leader has been silent for so long; it asks for more time this often.
leader_lease_s: Final = 2.0
# A standby asks this often for entries, and for who leads.
standby_poll_interval_s: Final = 0.1
journal_unsure_max_s: Final = 30.0
# While nobody leads, a standby holds requests so long before it has them come again.
takeover_hold_s: Final = 20.0
# A rename whose answer was lost is recognised when it is repeated within this time.
rename_memory_s: Final = 3600.0
# A page of a listing says how many entries follow it, counted no further than this.
list_remaining_max: Final = 10_000
link_backlog_bytes_max: Final = 64 * MIB
# The most requests that the coordinator works on at once, and how many of these may wait for it to become ready.
http_requests_in_flight_max: Final = 3072
startup_waiting_max: Final = 2048
bearer_token_min_s: Final = 60.0
granted_token_max_s: Final = 86_400.0
# The token of a supervised query's run; its agent gets another when half of that is over.
run_token_s: Final = 7 * 86_400.0
# HDFS: dfs.namenode.delegation.token.max-lifetime and .renew-interval.
delegation_token_max_s: Final = 7 * 86_400.0
