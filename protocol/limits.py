"""Every limit and deadline of the project, in one place; the unit is the last word of each name.

Services may be given other values at construction; nothing else defines a limit. One file, ordered by what is
limited and not by who obeys: a fifth of them is known to more than one package, and has to be the same for all.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# -- names ---------------------------------------------------------------------------------------
# HDFS: dfs.namenode.fs-limits.max-component-length (255, counted in UTF-8 bytes) and MAX_PATH_LENGTH.
name_bytes_max: Final = 255
path_characters_max: Final = 8000
path_depth_max: Final = 1000
# For users and groups. Linux: LOGIN_NAME_MAX is 256 with the byte that ends it; HDFS has no limit.
account_name_characters_max: Final = 255
# HDFS: dfs.namenode.fs-limits.max-directory-items.
directory_entries_max: Final = 1_048_576
# The coordinator remembers for so many directories how many entries they have.
directory_counts_max: Final = 100_000
# Changes of who may remove what: how many are remembered, how many a recursive delete looks at again in its
# commit, and how often it looks through the whole tree when there were more.
rights_changes_remembered_max: Final = 10_000
rights_changes_checked_max: Final = 1000
rights_walks_max: Final = 5
list_page_entries: Final = 1000
# HDFS: dfs.namenode.snapshot.max.limit.
snapshots_per_directory_max: Final = 65536
# A comparison of two snapshots holds both trees in memory.
snapshot_diff_entries_max: Final = 1_000_000
# Pairs of names that trade places in one commit.
exchange_pairs_max: Final = 16

# -- topology ------------------------------------------------------------------------------------
rack_depth_max: Final = 16
topology_file_bytes_max: Final = 16 * MIB
# Chunks that measure the network at once; what is measured is not in any file.
probes_max: Final = 256
# A probe that is not taken back by then is left to the reclaim of what no file refers to.
probe_memory_s: Final = 600.0
# Incoming streams with which a disk is measured, one after the other.
calibration_streams: Final = (1, 2, 4, 8)
calibration_s: Final = 2.0
# Streams through a link when it is measured.
calibration_link_streams: Final = 8
# Each of them crosses it to and fro so often. Longer pipelines take too long to fill and to drain.
calibration_pairs_max: Final = 4
# Disks whose rates differ less are taken for alike.
calibration_tolerance: Final = 0.1

# -- policies: simulated and planned ---------------------------------------------------------------
simulated_seeds_max: Final = 10_000
plan_body_bytes_max: Final = 1 * MIB
plan_requests_max: Final = 2000
plan_chunks_max: Final = 20_000
plan_servers_max: Final = 2000
# Ways are worked out between every two racks.
plan_switches_max: Final = 250
plan_timeout_s: Final = 30.0
# A dry run waits so long for the one before it.
plan_queue_timeout_s: Final = 5.0

# -- chunks --------------------------------------------------------------------------------------
chunk_bytes_max: Final = 64 * MIB
checksum_block_bytes: Final = 64 * KIB
# The most that a writer puts into a packet: so little that it is still in the processor's cache when who has
# received it verifies it, sends it on or stores it. Who reads takes as much at once where it has to copy it.
packet_bytes: Final = 256 * KIB
# The most of a large chunk that is sent to a reader as one packet, unread, and that a reader takes at once where
# it wants it: each packet and each piece costs turns at the interpreter's lock.
read_packet_bytes: Final = 4 * MIB
read_piece_bytes: Final = 1 * MIB
# The disk is asked for so much of a large chunk before a reader gets there.
readahead_bytes: Final = 4 * MIB
# Our client splits a read over the network of so much or more, if several datanodes have the chunks, into ranges
# of this size, so many of one file at once. A sequential reader has as many ranges read ahead. One client has so
# many threads for both, and keeps so much that was read ahead; a file opened beyond that is read without.
parallel_read_bytes_min: Final = 8 * MIB
parallel_range_bytes: Final = 4 * MIB
parallel_ranges_max: Final = 4
parallel_read_threads: Final = 8
read_ahead_bytes_max: Final = 64 * MIB
# Ahead is read for who has read so much without a seek.
read_ahead_after_bytes: Final = 1 * MIB
# Readers of shared descriptors wait for the disk with so many threads at most.
bounded_read_threads: Final = 16
# An open file keeps so many shared descriptors for its next reads.
shared_descriptors_kept_max: Final = 4
# Chunks up to this size share segment files; larger ones get a file each.
small_chunk_bytes_max: Final = 256 * KIB
# A large chunk is handed to the disk in such pieces while it is being received.
writeback_bytes: Final = 8 * MIB
segment_bytes_max: Final = 64 * MIB
# The most records that one append and one fsync of a segment carry.
segment_batch_records_max: Final = 256
segment_batch_bytes_max: Final = 8 * MIB
# Tombstones wait in memory for the next append, up to this many.
tombstones_waiting_max: Final = 1000
# The bytes of a segment that a scan reads at once: for the headers alone, and with the data.
scan_headers_window_bytes: Final = 64 * KIB
scan_data_window_bytes: Final = 1 * MIB
replication_default: Final = 3
# HDFS's own limit. A pipeline is no longer than the second; repair makes what a file is to have beyond it.
replication_max: Final = 512
pipeline_hops_max: Final = 16
min_replication: Final = 1

# A file takes no more by APPEND or CONCAT: its layout has to fit a frame's header.
file_chunks_max: Final = 2000
concat_sources_max: Final = 1000
# HDFS's own: extended attributes of one file or directory, name and value of one, and the entries of its ACL, and
# of its default ACL.
attributes_per_inode_max: Final = 32
attribute_bytes_max: Final = 16 * KIB
acl_entries_max: Final = 32
# A writer that flushes writes its last pieces anew with what follows, until they are together so long.
flush_merge_bytes_max: Final = 4 * MIB
# Pieces that were written anew wait for readers that know them, while their tokens are renewed, up to this many.
deferred_deletes_max: Final = 1_000_000
# The replicas of a file that was deleted or replaced stay for those who have it open, up to this many chunks.
freed_chunks_kept_s: Final = 10.0
freed_chunks_kept_max: Final = 200_000
# A token to read names the chunks of its file, or gives a digest when there are more: it is part of a URL.
read_token_chunks_max: Final = 64

# -- frames --------------------------------------------------------------------------------------
# A message may carry the chunks of a whole file between a client or gateway and the coordinator; between those who
# move data it is small.
frame_header_bytes_max: Final = 16 * MIB
frame_payload_bytes_max: Final = 4 * MIB
data_frame_bytes_max: Final = 5 * MIB
# No longer frame is accepted from a peer that has not completed its handshake.
handshake_frame_bytes_max: Final = 4 * KIB
# One seal covers so much between services: as much as a reader takes at once where it has to copy it.
sealed_record_bytes_max: Final = packet_bytes
# A connection reads so much with one call before it knows how long the frame is: a small frame as a whole.
frame_ahead_bytes: Final = 16 * KIB
# A client's frame is bounded by its description of a file: a completion names the receipts of all its chunks.
client_frame_bytes_max: Final = 2 * MIB
# To a datanode a client sends packets.
client_data_frame_bytes_max: Final = packet_bytes + 64 * KIB
# The memory that clients' unfinished frames may hold in a service; over it, the one begun longest ago is dropped.
begun_frames_bytes_max: Final = 128 * MIB
# A frame that has begun has ended after this, however its bytes drip.
begun_frame_timeout_s: Final = 15.0
# Payloads given and not taken within one process: so little that it is still in the processor's cache.
in_process_bytes_max: Final = 1 * MIB
# A connection's buffer begins with this and doubles when so much has come.
frame_buffer_bytes_min: Final = 64 * KIB
# For each kind of change: more than a datanode can write or drop in a second.
changes_per_heartbeat: Final = 8000
report_chunks_per_frame: Final = 500

# -- scheduling ------------------------------------------------------------------------------------
# A write that fits this goes out at once, through the fast lane: it never waits for a slot.
fast_lane_bytes_max: Final = 1 * MIB
# Incoming chunks of a datanode, and chunks of a writer, where nobody has said what disks and links carry.
streams_per_node_default: Final = 64
# A grant that was not used within this time lapses. It gives its capacity back when every node of its pipeline
# denies the stream; they are asked from then on, this often.
grant_open_s: Final = 30.0
grant_ask_interval_s: Final = 5.0
# A datanode reports within so long that a granted chunk has ended; after that the coordinator asks.
stream_end_timeout_s: Final = 2.0
# Clocks of datanodes may be behind by this much.
grant_clock_slack_s: Final = 5.0
# A writer that waits for a grant restates its set so often; after the longer silence it loses its place in the
# queue.
write_set_restate_s: Final = 3.0
write_set_silence_s: Final = 30.0
# GET /v1/schedule shows so many entries of the queue, and of the grants in flight.
schedule_entries_shown_max: Final = 200
# A request of a writer without a framed connection is held open so long.
grant_hold_s: Final = 2.0
# The total time for which a writer waits for a grant.
grant_timeout_s: Final = 1800.0
write_set_chunks_max: Final = 10_000
# A writer may not state more than fits this, which is a set of that size.
schedule_body_bytes_max: Final = 1 * MIB
write_sets_waiting_max: Final = 1000
write_set_chunks_waiting_max: Final = 100_000
# Recovery reads: at one datanode, over all clients.
readers_per_datanode_max: Final = 2
# A reader says this often that it lives; after the longer silence its grants are others'. It names at most so many
# of its chunks at a time.
read_grant_restate_s: Final = 3.0
read_grant_silence_s: Final = 10.0
reads_stated_max: Final = 128
readers_waiting_max: Final = 500
# A read does not fail because the coordinator does not answer: it goes on alone after the first, for the second.
read_grant_timeout_s: Final = 8.0
read_grant_alone_s: Final = 10.0
# The heads of chunks that are not quickly done are asked this often whether their writers make use of the room.
idle_grant_look_s: Final = 5.0
# Sets that were cancelled are remembered, with their age, for whoever comes back with another number of chunks.
write_set_memory_s: Final = 600.0
write_set_memory_max: Final = 4096
# Writes below a checkpoint root without such a pause belong to one checkpoint.
checkpoint_pause_s: Final = 5.0
checkpoint_roots_remembered_max: Final = 4096
# Policies that plan in steps look at so much before others get their turn, as requests times servers: 2 to 4 ms.
plan_servers_per_turn: Final = 1600
# Copies for repair that go on however busy the cluster is: one for so many datanodes, at least one.
nodes_per_repair_floor: Final = 8

# -- deadlines -----------------------------------------------------------------------------------
connect_timeout_s: Final = 3.0
handshake_timeout_s: Final = 5.0
# The most connections to the coordinator's port for datanodes that have not completed their handshake.
handshakes_waiting_max: Final = 512
# A hop that says nothing for this long in the middle of a chunk is taken for dead.
hop_timeout_s: Final = 15.0
# Each hop further from the writer gives up a little earlier, so that the one nearest to the fault names it.
hop_timeout_step_s: Final = 2.0
# A disk that takes longer than this over one group of small chunks is taken for broken.
disk_timeout_s: Final = 30.0
# Longer than a starting coordinator holds a call, shorter than the 60 s a Hadoop client waits for an answer.
control_call_timeout_s: Final = 50.0
# The coordinator answers every heartbeat; a link that is silent for this long is broken and made anew.
link_silence_timeout_s: Final = 8.0
# A Spark task may write one file for hours.
write_token_lifetime_s: Final = 6 * 3600.0
# A reader's rights are looked at again this often, so that rights that were taken away are gone after this time. A
# reader that has been silent for the longer time opens the file again.
read_token_lifetime_s: Final = 60.0
read_token_renewable_s: Final = 3600.0
# When a file is being sent and the coordinator does not say whether it still may be, it is asked again so soon.
read_renewal_retry_s: Final = 5.0
# A chunk that was placed is begun within this time, or another is placed.
chunk_begin_s: Final = 45.0
# A chunk that no file refers to is garbage after this time without a word of its writer, who says so often that it
# still holds its chunks, from the first such interval on. Counted is time in which a coordinator served.
unreferenced_chunk_kept_s: Final = 120.0
unreferenced_kept_s_min: Final = 1.0
keep_chunks_interval_s: Final = 30.0
keep_chunks_retry_s: Final = 5.0
# A call names so many of them at most.
kept_chunks_per_call: Final = 1000
# The coordinator notes so often which numbers have been drawn by then.
gc_floor_mark_interval_s: Final = 2.0
# In a pause between two of its ticks, no more than this counts as time in which it served.
gc_floor_step_s_max: Final = 20.0
# A hop that broke off has so long to give its reason.
last_word_timeout_s: Final = 1.0
# A producer that brings no byte of its file for this long is given up: its token has expired by then.
source_silence_s: Final = write_token_lifetime_s
# A writer renews its lease so often; after the longer silence another may take the lease (HDFS's soft limit).
lease_renewal_s: Final = 15.0
lease_s: Final = 60.0
# A file whose body comes through a gateway is shown, and what has come of it is flushed, when it has paused for so
# long, or when its oldest byte has waited for the longer time.
upload_pause_s: Final = 1.0
upload_age_s_max: Final = 5.0
# Whoever looks for the name before that has it shown at once; a body this young may end first.
upload_grace_s: Final = 0.03
# The body of a CREATE that was redirected comes within this time, or nobody waits for it; its name is forgotten
# after the longer one.
upload_awaited_s: Final = 2.0
upload_of_directory_awaited_s: Final = 0.2
upload_answer_timeout_s: Final = 6.0
begun_name_kept_s: Final = 60.0
begun_names_max: Final = 10_000
# An upload that is idle has its token renewed this often.
upload_token_renewal_s: Final = 3600.0
# Gateways keep so much of flushed uploads to write it anew with what follows: of each one, and in all.
upload_tail_bytes_max: Final = 2 * MIB
upload_tails_bytes_max: Final = 64 * MIB
ended_uploads_remembered_max: Final = 10_000
# A writer that abandons its lease waits no longer than this for an answer.
lease_abandon_timeout_s: Final = 2.0
# A reader that met a corrupt replica goes on with another; saying so must not hold it up for long.
corrupt_report_timeout_s: Final = 2.0
idle_connection_timeout_s: Final = 120.0
# The connecting side closes idle connections well before the other side does; over the number, the longest idle.
idle_connection_kept_s: Final = idle_connection_timeout_s / 2
idle_connections_max: Final = 256
# The same for HTTP to the coordinator; it closes what is silent for longer (`http_keep_alive_s`).
client_http_idle_s: Final = 30.0
client_http_connections_max: Final = 64
# One that was of use so lately is used again without a look at whether the peer has hung up since.
trusted_connection_s: Final = 1.0
write_attempts_max: Final = 4
read_rounds_max: Final = 2

# The room that a datanode leaves free on its disk for others.
reserved_bytes_default: Final = 1024 * MIB
# In that time no disk takes a tenth of the reserve.
room_known_for_s: Final = 0.05

# -- liveness ------------------------------------------------------------------------------------
heartbeat_interval_s: Final = 1.0
heartbeat_late_s: Final = 2.0
suspect_after_s: Final = 3.0
dead_after_s: Final = 10.0
# A placed chunk counts as load of its datanodes for so long, before they report it themselves.
pending_load_s: Final = 2.0
# A chunk that was preallocated for a small file to come is used within this time, or not at all; how many a client
# has in hand.
preallocated_chunk_kept_s: Final = 5.0
preallocated_chunks_max: Final = 64
# An unconfirmed replica counts for so long: longer than a heartbeat can be under way.
unconfirmed_replica_kept_s: Final = 10.0
# Remembered events of single replicas, of usual ones and of others alike, and of whole datanodes; and how many of
# them are told of one chunk.
replica_events_kept_max: Final = 20_000
datanode_events_kept_max: Final = 1_000
replica_events_shown_max: Final = 50
# So many of the files that refer to a chunk are reported, and so many references are read for that in one turn of
# the event loop.
chunk_files_shown_max: Final = 20
chunk_references_per_turn: Final = 5_000
# A completion waits so long for a datanode that gave a receipt to register with a coordinator that has restarted.
receipt_holder_timeout_s: Final = 20.0
# Chunks of which the coordinator remembers who alone may write them, and those that were abandoned.
assigned_chunks_max: Final = 50_000
abandoned_chunks_max: Final = 50_000
# A gateway remembers so many chunks of redirect URLs as used; older ones count as used.
one_time_chunks_remembered_max: Final = 50_000
# A writer abandons so many chunks with one call, of a file that it gives up.
abandoned_chunks_per_call: Final = 1000
reregister_backoff_s: Final = 0.5
reregister_backoff_max_s: Final = 5.0
# A coordinator that has just started holds CREATE and OPEN this long while datanodes report.
startup_hold_s: Final = 45.0
# ... and waits at least this long for datanodes that it knows from their replicas, unless all are there.
startup_settle_s: Final = 5.0
startup_reported_fraction: Final = 0.999
# Chunks that a starting coordinator loads before others get their turn.
load_chunks_per_turn: Final = 250

# -- repair --------------------------------------------------------------------------------------
repairs_in_flight_per_node: Final = 2
repair_timeout_s: Final = 120.0
# A datanode's rate for sending copies, the same as HDFS's for balancing. With less than the minimum a copy of a
# large chunk would not end before it is given up.
copy_bytes_per_second: Final = 100 * MIB
copy_bytes_per_second_min: Final = 4 * MIB
copy_burst_bytes: Final = 4 * MIB
compaction_interval_s: Final = 30.0
# Before a replica in excess goes, those that stay show that they hold it. What a datanode is asked at a time, and
# how long it may take; after answers that differ the chunk is left alone, each time for twice as long.
proofs_per_node_max: Final = 512
proof_bytes_per_node_max: Final = 128 * MIB
proof_timeout_s: Final = repair_timeout_s
proof_backoff_s: Final = 5.0
proof_backoff_max_s: Final = 600.0
proofs_refused_remembered_max: Final = 100_000
proof_nonce_bytes: Final = 32
# Chunks with a replica too many that are looked at before others get their turn, and such of them as have to wait.
surplus_chunks_per_tick: Final = 300
surplus_misses_per_tick: Final = 50

# -- taken out of service --------------------------------------------------------------------------
# The longest planned absence of a datanode during which its replicas are waited for.
maintenance_hours_default: Final = 4.0
maintenance_hours_max: Final = 30 * 24.0

# -- slow peers ----------------------------------------------------------------------------------
# Datanodes report each other's latency over the last one to two windows.
latency_window_s: Final = 30.0
latency_peers_max: Final = 1000
slow_judge_interval_s: Final = 5.0
slow_measured_nodes_min: Final = 3
slow_measured_chunks_min: Final = 5
# Anything faster than this is not slow, whatever the others take: 10 MiB a second, a small chunk in 0.1 s.
slow_s_a_mebibyte_min: Final = 0.1
slow_pardon_s: Final = 120.0
slow_avoided_fraction_max: Final = 0.34
# The reasons that are told: a disk is nearly full, and a datanode has much more to do, from here on.
slow_disk_full_share: Final = 0.95
slow_load_streams_min: Final = 8
slow_load_factor: Final = 3.0
slow_reporters_named_max: Final = 4

# -- balancing -----------------------------------------------------------------------------------
# HDFS: dfs.balancer's threshold, and dfs.datanode.balance.bandwidthPerSec.
balance_threshold_percent_default: Final = 10.0
balance_bytes_per_second_default: Final = 100 * MIB
balance_bytes_per_second_min: Final = 64 * KIB
# A client that wants a run renews it so often; after the longer silence it ends.
balance_renewal_s: Final = 0.5
balance_silence_s: Final = 10.0
# Copies that fail one after the other before a run is given up.
balance_failures_max: Final = 20
# A datanode that balances its own disks looks so often whether it still should.
disk_balance_look_s: Final = 0.5
balance_chunks_per_turn: Final = 500
# A datanode takes part in so much at once: two moves of large chunks, or sixteen of small ones.
balance_weight_per_node_max: Final = 16

# -- deletion and reclaiming -----------------------------------------------------------------------
deletes_per_command: Final = 1000
garbage_chunks_per_tick: Final = 2000
lost_replicas_per_turn: Final = 1000
# The sets of datanodes that hold a chunk are few, each is kept once; with very many datanodes they are not.
holder_tuples_max: Final = 100_000
reclaim_entries_per_commit: Final = 500
# The coordinator checks so often whether something in a trash has expired; the longest time it may be kept.
trash_look_interval_s: Final = 60.0
# Reads whose access times wait to be committed, how many go into one commit, and how often that is done.
access_times_noted_max: Final = 100_000
access_times_per_commit: Final = 500
access_times_interval_s: Final = 1.0
trash_users_per_turn: Final = 50
trash_minutes_max: Final = 10 * 366 * 24 * 60
# Temporary files that dead writers left: how long one must have been as it is, by the clock; how long the
# coordinator must have seen it so itself; how often it looks.
temporary_age_hours_default: Final = 24.0
temporary_age_hours_min: Final = 1.0
temporary_watched_s: Final = 3600.0
temporary_look_interval_s: Final = 1800.0
temporary_watched_max: Final = 100_000
temporary_entries_per_turn: Final = 1000

# -- the web page ------------------------------------------------------------------------------------------
# A view is made anew so often, once for all who look at the same, and not at all for nobody.
live_interval_s: Final = 1.0
# A line without meaning, by which a browser knows that the stream lives; it asks again after some of these.
live_keep_alive_s: Final = 10.0
# The rights of who looks are checked again by then: decision 29.
live_stream_s_max: Final = 60.0
live_viewers_max: Final = 256
live_viewers_per_client_max: Final = 64
# Grants that have ended are remembered for the time line, so many and for so long.
grant_history_s: Final = 300.0
grant_history_max: Final = 2000
# So many copies under way, grants on the time line and chunks of a file are shown.
copies_shown_max: Final = 100
file_chunks_shown_max: Final = 500
# A coordinator whose tick was that long ago is stuck, and tells so; a busy machine holds it for much less.
tick_silence_s_max: Final = 30.0

# -- the coordinator's background tasks --------------------------------------------------------------------
tick_interval_s: Final = 0.25
# While copies are under way: those that are done make room for others at the next tick alone, and a small chunk is
# copied in a few milliseconds.
repair_tick_interval_s: Final = 0.05
tidy_interval_s: Final = 60.0
# Below this a report says what the disk of the metadata has left: the log alone may take a quarter of it.
metadata_room_low_bytes: Final = 64 * MIB

# -- processes that are waited for ------------------------------------------------------------------
# A process that uses less of a processor has nothing to do: a JVM, say, whose query hangs.
idle_processor_fraction: Final = 0.02

# -- the event loop and threads --------------------------------------------------------------------
# The coordinator works so long on one datanode's messages before others get their turn; while one has not
# finished, others with more than this wait for a turn of their own.
link_turn_s: Final = 0.003
link_at_once_bytes: Final = 4 * KIB
# Entries of a tree that are counted before others get their turn.
summary_entries_per_turn: Final = 500
# The event loop is looked at this often; a hold longer than that is logged, with a pause between two.
loop_watch_interval_s: Final = 0.05
loop_hold_logged_s: Final = 0.1
loop_log_pause_s: Final = 1.0
# A datanode works on two copies for repair and two for balancing, proves what it holds, and still deletes and
# verifies.
order_threads: Final = 7
# Buffers up to this size come from so many heaps, each of which keeps so much of what was freed.
heap_buffer_bytes_max: Final = 4 * MIB
heap_kept_bytes: Final = 16 * MIB
heaps_max: Final = 4
# The interpreter's default of 5 ms lets busy threads hold up the event loop of their process.
thread_switch_interval_s: Final = 0.0005
# A disk that takes longer lately is not waited for by the thread that all small chunks share, and one that does
# not answer at all holds it up for so long at most.
quick_disk_s: Final = 0.001
reactor_stuck_s: Final = 1.0
# A step that has run so long without waiting, because its peer sends without a pause, lets the others go first.
reactor_turn_s: Final = 0.01

# -- scrubbing -----------------------------------------------------------------------------------
# HDFS: dfs.datanode.scan.period.hours (three weeks) and dfs.block.scanner.volume.bytes.per.second.
scrub_period_s: Final = 21 * 86_400.0
scrub_bytes_per_second: Final = 1 * MIB
# A small replica costs a seek and a turn of the interpreter: it counts for as much as this.
scrub_cost_bytes_min: Final = 64 * KIB
scrub_batch_chunks: Final = 4096
# After a crash, at most so much scrubbing is repeated.
scrub_save_interval_s: Final = 60.0
# A scrubber that rests looks up this often; a replica that the disk failed to read is tried once more after it.
scrub_rest_s: Final = 30.0
# A corrupt replica that is still here after this time is read, and reported, again.
scrub_recheck_s: Final = 600.0
scrub_corrupt_remembered_max: Final = 4096

# -- inspection ----------------------------------------------------------------------------------
fsck_entries_per_page: Final = 1000
fsck_entries_per_read: Final = 100
fsck_chunks_per_turn: Final = 500
# An inspection keeps the event loop for so long at a time.
fsck_turn_s: Final = 0.002
fsck_chunks_shown_max: Final = 100

# -- bounds on memory and work ---------------------------------------------------------------------
gateway_first_buffer_bytes: Final = 1 * MIB
gateway_buffer_bytes_max: Final = 512 * MIB
# A producer may be so far ahead of the writer of its file.
stream_buffer_bytes: Final = 4 * MIB
# Threads for files longer than the first buffer, each held as long as its client sends, which a Spark task may
# do for minutes; most of them sleep, and memory is bounded above. And threads for small files and for pieces to
# be read, which are soon free again.
gateway_threads: Final = 256
gateway_quick_threads: Final = 32
# A body that a connection takes in with one call is written by the thread that all small chunks share,
# as many at once as there are quick threads.
gateway_threadless_bytes_max: Final = frame_ahead_bytes
# Calls that nobody waits for on a thread are so few that the connection to the coordinator has room for each.
begun_calls_max: Final = 64
# And for small files that lie on the datanode's own disk and are not in memory, which they read there. A disk that
# does not answer in time may keep all of them: such files are then read from other replicas, as those are that lie
# elsewhere.
gateway_local_reads_max: Final = 4
gateway_local_read_timeout_s: Final = 1.0
# The segments that are read are kept open for so long, and so many of them; what one that is removed takes of the
# disk is free that much later.
kept_files_max: Final = 64
kept_file_s: Final = 10.0
# And for pieces of large chunks that lie there. Of a file one piece is being sent, one waits, one is read: so
# little that all are still in a cache.
gateway_local_pieces_max: Final = 8
gateway_local_piece_bytes: Final = 512 * KIB
# A large chunk that is written around the page cache goes to the disk in pieces of so much.
direct_write_bytes: Final = 512 * KIB
# A thread that sends what it has read goes on until it has sent so much, or has waited so long for the client in
# all. Then it is others' turn.
direct_turn_bytes: Final = 8 * MIB
direct_wait_s: Final = 0.02
# A request waits so long for one of them, or for memory, before it is told to try again.
gateway_queue_timeout_s: Final = 60.0
# A datanode that is stopped tells its coordinators, which lead nobody there any more, and waits for those who were
# led there before: longer if it has been asked over HTTP lately. Bodies that are under way then have so long to
# end (Docker kills after ten seconds, Kubernetes after thirty), and others so long to hear that they are refused.
stop_notice_timeout_s: Final = 1.0
stop_redirects_s: Final = 0.3
stop_redirects_in_use_s: Final = 1.0
gateway_in_use_s: Final = 60.0
gateway_drain_s: Final = 7.0
gateway_cut_off_s: Final = 1.0
gateway_downloads_max: Final = 256
data_connections_max: Final = 1024
# For clients of one address: a machine with many tasks has some hundreds.
data_connections_per_address_max: Final = 768
commit_batch_max: Final = 256
commit_queue_max: Final = 10_000
# A commit waits for changes that are likely to come, but for no longer than this part of what commits take.
commit_delay_share: Final = 0.25
commit_delay_s_max: Final = 0.005
# When no change has come for so long, what the log holds is copied into the store; in any case after the second.
# Each time changes wait for two syncs; until then the log alone holds them.
metadata_tend_interval_s: Final = 0.25
metadata_log_age_max_s: Final = 5.0
# After a power cut the record of the last commit may be older than that commit by so much. Each record costs a
# sync of its own.
commit_record_interval_s: Final = 1.0
# Pages of the metadata that are compared with their checksums once a second: 1 MiB, half a millisecond.
metadata_scrub_pages: Final = 256
# A backup copies this much at once, then pauses: 1 MiB, which the disk has written before a commit misses it.
backup_pages_per_step: Final = 256
backup_pause_s: Final = 0.002
backup_block_bytes: Final = 256 * KIB
# A client waits so long for the coordinator to make its copy.
backup_timeout_s: Final = 1800.0
# A restored store moves its epoch by up to this: restored again, it hardly meets the same numbers.
restore_epoch_jump_max: Final = 4096
check_examples_max: Final = 5
# The journal: a call to one member of etcd is given up after so long, and the next member asked.
journal_connect_timeout_s: Final = 0.5
journal_call_timeout_s: Final = 2.0
# An entry goes by way of etcd's gateway for so long after gRPC was of no use.
journal_grpc_rest_s: Final = 5.0
# etcd takes requests of 1.5 MiB: a longer entry is cut into parts.
journal_part_bytes_max: Final = MIB
# A standby reads so many entries at once, and no more of them when they have so many bytes.
journal_read_entries: Final = 256
journal_read_bytes_max: Final = 8 * MIB
# Nobody else may lead until a leader has been silent for so long; it asks for more time this often.
leader_lease_s: Final = 2.0
leader_renew_interval_s: Final = 0.5
# A leader that was not confirmed for so long answers nobody, until it is.
leader_silence_max_s: Final = 1.5
# Before clients are sent to it, a standby looks whether the leader takes connections, at most this often.
leader_probe_s: Final = 0.2
leader_probe_timeout_s: Final = 0.5
# A standby asks this often for entries, and for who leads.
standby_poll_interval_s: Final = 0.1
# A leader that hands over looks this often who leads; when nobody does after so long, it leads on.
hand_over_poll_s: Final = 0.05
hand_over_wait_s: Final = 5.0
# It asks for an answer to an append again after this pause, and ends when there was none for so long.
journal_repeat_pause_s: Final = 0.05
journal_unsure_max_s: Final = 30.0
# Without a leader a datanode looks this often whether there is one.
leaderless_retry_s: Final = 0.05
# Coordinators state how far they have come this often; those that do not are forgotten.
standing_interval_s: Final = 1.0
standing_lives_s: Final = 10.0
# Entries that all coordinators have are trimmed, but for so many bytes; beyond the maximum nothing is changed.
journal_kept_bytes: Final = 64 * MIB
journal_bytes_max: Final = 1024 * MIB
journal_trim_interval_s: Final = 5.0
# With less room on its disk a leader refuses changes before it appends them, for afterwards it could not.
journal_disk_room_bytes_min: Final = 32 * MIB
# While nobody leads, a standby holds requests so long before it has them come again.
takeover_hold_s: Final = 20.0
# A standby waits so long for what it asks the leader in another's place, of at most so many bytes.
relay_timeout_s: Final = 10.0
relayed_body_bytes_max: Final = 64 * KIB
# A standby keeps what was freed so long, for the case that the leader dies before it has had it deleted.
standby_freed_kept_s: Final = 300.0
# Answers are kept for whoever repeats a request: longer than a write token lives; when there are more than the
# number, for the shorter time, which is several times what any client goes on asking.
request_memory_s: Final = 86_400.0
requests_remembered_max: Final = 1_000_000
request_memory_crowded_s: Final = 600.0
requests_forgotten_per_commit: Final = 1000
request_id_characters_max: Final = 128
# The id by which a request is named in logs: a longer one is replaced.
trace_id_characters_max: Final = 64
# A process that ends waits so long for its last spans to be exported.
trace_export_timeout_s: Final = 5.0
# A rename whose answer was lost is recognised when it is repeated within this time.
rename_memory_s: Final = 3600.0
# A page of a listing says how many entries follow it, counted no further than this.
list_remaining_max: Final = 10_000
control_requests_in_flight_max: Final = 4096
link_backlog_bytes_max: Final = 64 * MIB
# Such a body may take so long to arrive.
control_body_timeout_s: Final = 60.0

# -- client ----------------------------------------------------------------------------------------
# The client retries for so long when the coordinator refuses for now, or is away after it has answered before.
client_retry_s: Final = 20.0
client_backoff_s: Final = 0.1
client_backoff_max_s: Final = 2.0
# One answer may take this long: CREATE and OPEN are held while the coordinator waits for reports.
client_answer_timeout_s: Final = startup_hold_s + control_call_timeout_s
# A client waits so long for the copy of a tree: ten million files, on a slow machine.
copy_timeout_s: Final = 3600.0
# Threads with which the I/O service writes or reads a checkpoint, and how many of them read from one datanode: a
# disk gives less to more (SGuard's Table 8).
checkpoint_workers_default: Final = 4
checkpoint_workers_max: Final = 64
checkpoint_manifest_bytes_max: Final = 64 * MIB
# A terabyte in pages of 64 KiB.
checkpoint_pages_max: Final = 16 * MIB
# Files that `put` and `get` copy at once, unless told otherwise and at most; how many more may be listed.
transfer_jobs_default: Final = 4
transfer_jobs_max: Final = 64
transfers_listed_ahead_max: Final = 256
# Calls of one asynchronous client that are under way at once.
async_calls_at_once_max: Final = 32
# Ranges of files that one call of the fsspec file system reads at once.
ranges_read_at_once_max: Final = 8

# -- local cluster ---------------------------------------------------------------------------------
local_datanodes_default: Final = 4
local_datanodes_max: Final = 64
# A member that starts is given up when it has done nothing at all for so long, or is not ready after the longer.
local_start_timeout_s: Final = 20.0
local_start_longest_s: Final = 300.0
local_stop_timeout_s: Final = 5.0
# A datanode that is not ready by then is said to be slow; the cluster is of use without it.
local_slow_start_s: Final = 20.0
# A member of `peacefs up` that dies is started again after growing pauses, so many times; a run that lasts longer
# makes up for all failures before it.
local_restart_pause_s: Final = 0.5
local_restart_pause_max_s: Final = 30.0
local_restarts_max: Final = 8
local_restart_forgotten_s: Final = 60.0

# -- spark -----------------------------------------------------------------------------------------
java_probe_timeout_s: Final = 120.0
java_version_min: Final = 17
# A query that does nothing at all for so long is given up, and one that finishes no batch in the longer time.
query_silence_s: Final = 90.0
query_stall_s: Final = 1800.0
query_kill_timeout_s: Final = 3.0
query_restarts_max: Final = 4
# The number of times that the demo tries to hit a batch in the middle; how long it waits for repairs of which
# there is no news, and for all of them.
demo_kills_max: Final = 3
demo_repair_timeout_s: Final = 60.0
demo_repair_longest_s: Final = 900.0

# -- runs, reports and checkpoints -----------------------------------------------------------------
# Runs of queries: of how many roots one answer tells, how many are looked at in a turn, how long a host's name is.
runs_listed_max: Final = 10_000
runs_per_turn: Final = 100
run_host_characters_max: Final = 255
# Drivers' reports of their queries: how many the coordinator remembers; texts and durations in one; how many
# unsent ones a driver keeps; how often it says that nothing has changed; when it tries again; how long it waits at
# its end for the last, and for an answer to each.
reports_remembered_max: Final = 1000
report_text_characters_max: Final = 1000
report_durations_max: Final = 64
report_queue_max: Final = 64
report_interval_s: Final = 10.0
report_retry_s: Final = 1.0
report_stop_s: Final = 3.0
report_timeout_s: Final = 2.0
# The most entries of a checkpoint, and of a tree that is searched for checkpoints.
checkpoint_entries_max: Final = 2_000_000
# A checkpoint that was written to more recently belongs to a run that is alive, unless the operator knows better.
checkpoint_idle_s: Final = 30.0
# Younger files that nothing refers to may be about to be referred to.
checkpoint_orphan_age_s: Final = 3600.0
# A copy out of sight in which nothing has changed for so long was left by a command that was killed.
checkpoint_left_over_age_s: Final = 24 * 3600.0
# Files of an archive that are written at once.
checkpoint_import_threads: Final = 16
# Stores of one stateful operator, in all its partitions.
checkpoint_partitions_max: Final = 1_000_000
# A look at checkpoints that the coordinator was asked for over REST: how long it may take and wait, and say.
checkpoint_look_timeout_s: Final = 60.0
checkpoint_look_queue_timeout_s: Final = 5.0
checkpoint_look_bytes_max: Final = 64 * MIB
# So many of a checkpoint's latest batches are shown, with their times and files.
checkpoint_batches_shown_max: Final = 100
# The steps that a checkpoint remembers of where it came from, in one extended attribute, and the paths in them.
checkpoint_ancestry_steps_max: Final = 32
checkpoint_ancestry_bytes_max: Final = 12 * KIB
checkpoint_ancestry_path_chars_max: Final = 1024
# A text file of a checkpoint that is longer is not read; the largest are compacted logs of file sources.
checkpoint_text_bytes_max: Final = 256 * MIB
# Only the checksum of a longer changelog is verified, not its content.
checkpoint_changelog_bytes_max: Final = 64 * MIB
# The most that a changelog may hold when it is unpacked.
checkpoint_contents_bytes_max: Final = 1024 * MIB

# -- supervision -----------------------------------------------------------------------------------
agent_beat_interval_s: Final = 1.0
# One with a standby that waits asks more often: the query stands still until it hears.
agent_beat_with_standby_interval_s: Final = 0.2
# An answer that comes later is of no use: what it says may not be so any more.
agent_answer_timeout_s: Final = 3.0
# After a failed attempt an agent waits, twice as long each time; less while runs depend on it.
agent_retry_s: Final = 0.5
agent_retry_busy_max_s: Final = 2.0
agent_retry_max_s: Final = 15.0
# An agent's run ends when it has had no answer for so long, whatever has become of the agent.
run_guard_timeout_s: Final = 10.0
# Longer than both together: when an agent is taken for dead, nothing of what it ran is left.
agent_dead_after_s: Final = 15.0
# A run that is to stop has so long before it is killed.
run_stop_grace_s: Final = 3.0
agent_runs_max_default: Final = 4
agent_runs_max: Final = 256
agent_list_bytes_max: Final = 1 * MIB
configuration_bytes_max: Final = 1 * MIB
# A run's output is kept up to this size, and as much of the output before; for so many runs.
run_log_bytes_max: Final = 16 * MIB
run_logs_kept_max: Final = 5
run_last_words_characters_max: Final = 300
# The end of a run's log, as people are shown it, so many at once, and how long an agent has to send it.
run_log_shown_bytes: Final = 32 * KIB
run_logs_sent_max: Final = 8
run_log_wait_s: Final = 10.0
supervised_queries_max: Final = 1000
supervised_name_characters_max: Final = 100
supervised_arguments_max: Final = 256
supervised_command_characters_max: Final = 32 * KIB
supervised_nodes_max: Final = 256
supervised_restarts_default: Final = 10
supervised_restarts_max: Final = 1_000_000
# Between two starts: doubled each time, up to the maximum.
supervised_backoff_s: Final = 1.0
supervised_backoff_max_s: Final = 60.0
# A run that has lasted so long was a good one: failures before it do not count any more.
supervised_settled_s: Final = 600.0
# A query has run for so long before its standby is started: both starts at once would take twice as long.
supervised_standby_after_s: Final = 5.0
# The driver of a standby looks so often for its agent's letter; warms itself by so many batches, and by so many of
# the last files of each of a checkpoint's directories.
standby_poll_s: Final = 0.02
standby_warm_batches: Final = 3
standby_warm_files_max: Final = 8
supervision_tick_interval_s: Final = 0.5
# Files of a checkpoint that are looked at to find out where it is, and in one turn of the event loop.
checkpoint_locality_entries_max: Final = 20_000
checkpoint_locality_entries_per_turn: Final = 200

# -- HTTP ------------------------------------------------------------------------------------------
# The JDK's pool keeps idle connections about 5 s, others longer; a server that closes first breaks requests.
http_keep_alive_s: Final = 75
http_first_byte_timeout_s: Final = 60.0
# A Spark task may be silent until its first row group is full. A client whose machine is gone is found out
# sooner, by TCP's keep-alive.
http_body_idle_timeout_s: Final = 600.0
tcp_keepalive_idle_s: Final = 60
tcp_keepalive_interval_s: Final = 10
tcp_keepalive_probes_max: Final = 6
# A client that takes nothing of a pending answer is cut off after this. A Spark task may chew on a row group for
# minutes before it reads on; HDFS's datanodes wait as long.
http_write_stall_timeout_s: Final = 480.0
# An offender may read its refusal before the connection is reset.
http_linger_s: Final = 1.0
http_shutdown_grace_s: Final = 3
http_connections_max: Final = 4096
client_links_max: Final = 4096
client_links_per_address_max: Final = 2048
http_crowd_log_pause_s: Final = 5.0
# The most requests that the coordinator works on at once, and how many of these may wait for it to become ready.
http_requests_in_flight_max: Final = 3072
startup_waiting_max: Final = 2048
# The longest URL that httptools can parse.
http_url_bytes_max: Final = 64 * KIB - 1
http_head_bytes_max: Final = 128 * KIB
# A header costs a hundred bytes of memory however short it is. Hadoop's client sends six.
http_headers_max: Final = 100
# Requests that wait for an answer to the one before them on the same connection.
http_pipelined_max: Final = 16
# The audit log: how long lines are gathered before they are written together, what waits for a disk that is
# slow or full before records are lost, how often it is tried again, how long an end waits for it, and how much
# of a name is told.
audit_gather_s: Final = 0.1
audit_waiting_bytes_max: Final = 16 * MIB
audit_retry_s: Final = 1.0
audit_stop_timeout_s: Final = 5.0
audit_field_characters_max: Final = path_characters_max
# One client's share, a client being an address or an IPv6 network of 64 bits: connections to one service, requests
# in flight at the coordinator, uploads and downloads at a gateway, and the memory of its uploads there. The rest
# is left to others.
http_connections_per_client_max: Final = 2048
http_requests_in_flight_per_client_max: Final = 2048
gateway_transfers_per_client_max: Final = 192
gateway_buffer_per_client_bytes_max: Final = 384 * MIB
# The memory for unfinished heads and unread answers over all connections of one service. Over it, the connection
# that has been so for longest is closed.
http_heads_bytes_max: Final = 32 * MIB
http_unsent_bytes_max: Final = 256 * MIB
# Bodies of REST requests: of a route without a limit of its own, and over all requests under way together, and
# what one client may have of that. What is parsed of JSON takes several times as much.
rest_body_bytes_max: Final = 512 * KIB
# The chunks of a whole file (over a terabyte), and lists of names.
completion_body_bytes_max: Final = 8 * MIB
names_body_bytes_max: Final = 2 * MIB
rest_bodies_bytes_max: Final = 32 * MIB
rest_bodies_per_client_bytes_max: Final = 24 * MIB
# So many connections may be in a TLS handshake, each for so long: of too many the one goes that has been at it
# for longest.
tls_handshakes_max: Final = 512
# One client has so many of these, and loses its own when it wants more.
tls_handshakes_client_max: Final = 256
tls_handshake_timeout_s: Final = 10.0
# Whoever does not answer the end of a TLS connection is not waited for any longer.
tls_shutdown_timeout_s: Final = 2.0
# Handshakes that fail are logged once in so long, with how many there were.
tls_fault_log_pause_s: Final = 5.0
# Certificates are checked so often; they are reloaded when they have stayed the same from one check to the next.
tls_files_look_s: Final = 2.0
tls_renewal_warning_days: Final = 14.0
tls_renewal_warning_pause_s: Final = 86_400.0
# The most that is encrypted or received at once: larger pieces cost more, for their memory comes anew from the
# kernel.
tls_sealed_bytes_max: Final = 64 * KIB
# The trial CA that `peacefs certificates` makes, and what it signs.
trial_authority_days: Final = 365
trial_certificate_days_default: Final = 90
coordinator_http_port_default: Final = 9870
coordinator_node_port_default: Final = 9820
datanode_http_port_default: Final = 9864
datanode_data_port_default: Final = 9866

# -- credentials -----------------------------------------------------------------------------------
# A bearer token travels in a head, and in a hello.
bearer_token_characters_max: Final = 2048
# A delegation token travels in URLs; owner and renewer are at most of `account_name_characters_max`.
delegation_token_characters_max: Final = 2048
bearer_token_default_s: Final = 12 * 3600.0
bearer_token_min_s: Final = 60.0
bearer_token_max_s: Final = 366 * 86_400.0
# Granted to OAuth2 clients. Hadoop's client fetches another half a minute before one ends.
granted_token_default_s: Final = 3600.0
granted_token_min_s: Final = 31.0
granted_token_max_s: Final = 86_400.0
# The token of a supervised query's run; its agent gets another when half of that is over.
run_token_s: Final = 7 * 86_400.0
# Services that may act for others.
proxy_users_max: Final = 1000
# HDFS: dfs.namenode.delegation.token.max-lifetime and .renew-interval.
delegation_token_max_s: Final = 7 * 86_400.0
delegation_token_renewal_s: Final = 86_400.0
delegation_tokens_max: Final = 100_000
# For one owner, so that nobody can take all.
delegation_tokens_per_owner_max: Final = 1000
# Tokens that were made by hand and are listed, and what is revoked: every datanode is told all of the latter.
issued_tokens_max: Final = 10_000
revoked_tokens_max: Final = 10_000
oauth_clients_max: Final = 1000
# Verified tokens that are remembered by their hash.
verified_tokens_max: Final = 10_000
# Expired credentials are removed so often.
credentials_tidy_interval_s: Final = 60.0
# Guesses at a client's secret from one address before it is told to wait, and how long they count.
wrong_secrets_max: Final = 10
wrong_secrets_memory_s: Final = 60.0
# Addresses whose guesses are remembered, secrets that are checked at once (each takes 16 MiB and 50 ms of a core),
# and those that wait.
guessing_addresses_max: Final = 10_000
secret_checks_max: Final = 2
secret_checks_waiting_max: Final = 64

# -- dataflows -------------------------------------------------------------------------------------
# A consumer lets a producer send so much before it has processed any of it.
dataflow_credit_bytes: Final = 4 * MIB
# Rows that an output keeps for replay; its unit waits when there are more.
dataflow_buffer_bytes_max: Final = 256 * MIB
dataflow_heartbeat_s: Final = 0.2
# Units wait so long for all nodes that were wanted; then they are placed on those that are there.
dataflow_start_wait_s: Final = 10.0
# A node may be silent so long before its units begin elsewhere.
dataflow_node_timeout_s: Final = 0.8
# An observer that did nothing for a while counts no more of it than this part of the timeout.
dataflow_steps_of_silence: Final = 4
# A node that is busy with one batch says so long that its process is alive; then it is taken for hung.
dataflow_busy_s_max: Final = 60.0
# A node whose connection to the controller broke may be silent so long.
dataflow_suspect_s: Final = 0.5
# A producer that does not answer is asked again after so long.
dataflow_subscribe_retry_s: Final = 1.0
# A node looks at the time so often.
dataflow_tick_s: Final = 0.05
# The longest intervals that techniques take: of checkpoints, and of acknowledgements.
dataflow_checkpoint_interval_s_max: Final = 86_400.0
dataflow_acknowledge_interval_s_max: Final = 60.0
# An output's rows that states of consumers may depend on; the query stops when there are more.
dataflow_retained_bytes_max: Final = 1024 * MIB
# Points of a unit that are remembered: where rows came in, and where it could begin.
dataflow_causes_max: Final = 4096
# A driver asks so often whether a younger one has begun, and delivers to sinks for so long after the answer.
dataflow_fence_s: Final = 0.25
dataflow_lease_s: Final = 1.0
# Rows wait so long for a coordinator that says whether they may be delivered; then the query fails.
dataflow_unfenced_s_max: Final = 600.0
# A driver that takes over waits so long for the end of a delivery of the one before.
dataflow_delivery_s_max: Final = 30.0
# The time that a connection has for its greeting, and the most connections that have not greeted; over that the
# oldest ends. A greeting that is sent at once is read before so many others can be accepted.
dataflow_greeting_s: Final = 5.0
dataflow_strangers_max: Final = 256
dataflow_strangers_backlog: Final = 32
# The limits of one message between nodes: its head, and its rows.
dataflow_head_bytes_max: Final = 1 * MIB
dataflow_rows_bytes_max: Final = 256 * MIB
# Larger batches are cut before they are sent, and a row that is longer than this is refused.
dataflow_batch_bytes_max: Final = 16 * MIB
dataflow_row_bytes_max: Final = 128 * MIB
# Rows of one batch that a source offers; larger ones are cut.
dataflow_batch_rows_max: Final = 65_536
# Parts of a stage, and rows of all of them that a part without rows holds up at most.
dataflow_parts_max: Final = 1024
dataflow_grain_rows: Final = 2048
#: Maximum number of integers that one sum or mean adds up, per key and window.
dataflow_values_per_sum_max: Final = 2**31 - 1
# A stream log begins another segment when one has so many bytes.
stream_log_segment_bytes: Final = 64 * MIB
# A reader reads a log in pieces of so many bytes, and keeps so many rooms for them that nothing is in any more.
# They are decoded while the processor's cache has them.
stream_log_read_bytes: Final = 2 * MIB
stream_log_rooms_kept: Final = 2
# So much is read to find the last record of a log, or the schema of a segment.
stream_log_tail_bytes: Final = 64 * 1024
# Batches of one commit are joined into records of up to so many bytes.
stream_log_record_bytes: Final = 1 * MIB
# So often a follower looks whether a log has grown.
stream_log_poll_s: Final = 0.05
# A sink waits so long for more rows before it commits what it has.
stream_log_commit_s: Final = 0.02
# A sink holds its query up while so many rows are not committed.
stream_log_sink_rows_max: Final = 1_000_000
# Writers whose epochs a log remembers; the one that has committed longest ago is forgotten.
stream_log_writers_max: Final = 64
# Streams of a commit that are flushed at once.
stream_log_flushes_max: Final = 16
# Memory of one unit's state, and the size of its pages. During a checkpoint there can be two copies of a page.
dataflow_state_bytes_max: Final = 8 * 1024 * MIB
dataflow_page_bytes: Final = 64 * KIB
# A batch is aggregated before it goes into groups if it has so many rows; when it had more groups than this share
# of its rows, so many batches after it are not.
dataflow_combined_rows_min: Final = 1024
dataflow_combined_share_max: Final = 0.3
dataflow_uncombined_batches: Final = 63
# A value of such a map is cut into pieces if it is longer than this part of a page; a key has half a page.
dataflow_pieces_per_page: Final = 4
# Changes of a function's map that are put into pages at once.
dataflow_pending_changes_max: Final = 1024
# Values of such a map that are kept as they are in the pages, so that they need not be looked for there again.
dataflow_known_values_max: Final = 65_536
dataflow_known_bytes_max: Final = 16 * MIB
# A checkpoint whose turn is further away is cancelled, and taken afresh after so long.
dataflow_checkpoint_patience_s: Final = 2.0
dataflow_checkpoint_retry_s: Final = 1.0
# A node looks so often whether a checkpoint that is being written is there.
dataflow_checkpoint_poll_s: Final = 0.01
# Recorded checkpoints of a unit that are kept.
dataflow_checkpoints_kept: Final = 2
# Checkpoints of one start of a unit.
dataflow_checkpoints_per_start_max: Final = 1_000_000
# The numbers of copies for a standby that one start of a unit can have, as bits.
dataflow_copy_number_bits: Final = 36
# Copies are sent in pieces, so many of which may be on their way.
dataflow_copy_piece_bytes: Final = 1 * MIB
dataflow_copy_pieces_max: Final = 4
# A copy may be based on so many older ones before their pages are sent again.
dataflow_copy_generations_max: Final = 64
# A passive standby's copy is renewed, without any new row, when so many events were recorded.
dataflow_determinants_max: Final = 256
# A unit processes so many batches before its node looks at messages and the time again.
dataflow_events_per_turn: Final = 32
# Events of one message to a standby.
dataflow_determinants_per_message_max: Final = 1024
# Events of a unit that the controller keeps; the query stops when there are more.
dataflow_events_kept_max: Final = 4_000_000
# A node looks so often whether a copy for a standby was made.
dataflow_copy_poll_s: Final = 0.002
# Requests for rows of a standby that began with one copy.
dataflow_attempts_per_copy_max: Final = 1_000_000
# Messages for standbys of which a node has not been told yet.
dataflow_early_messages_max: Final = 4096
# CEC: rows that may have to be replayed; windows checked at a time; lists of footprints that are kept before
# those are looked for that count no more; and the segments of a unit's log, which are read and trimmed whole.
cec_replay_rows: Final = 1_000_000
cec_windows_per_check: Final = 2048
cec_entries_tidied_min: Final = 256
cec_segment_bytes: Final = 8 * MIB
# A unit's log is committed so often.
cec_commit_s: Final = 0.05
# CEC's choice by cost and benefit: the cost of a tuple to load, of a row to replay, of a window to check.
cec_load_tuple_s: Final = 0.5e-6
cec_replay_row_s: Final = 0.5e-6
cec_check_window_s: Final = 1e-6
# For the demo's nodes, whose machine starts JVMs meanwhile.
dataflow_demo_node_timeout_s: Final = 3.0
# Starts of a unit under one controller.
dataflow_incarnations_per_run_max: Final = 1000
# A sample of a query's rows is measured in so many batches a second; its state may have so much.
advice_batches_s: Final = 20.0
advice_state_bytes_max: Final = 1024 * MIB
# A query stops when a unit has begun so often, one start after the other, and has never caught up.
dataflow_starts_in_vain_max: Final = 10
# A query stops when a node has ended so often, one start after the other, before it was there.
dataflow_failed_starts_max: Final = 5
# Spark ends a job whose task has failed so often (spark.task.maxFailures, 4 unless it is set).
dataflow_task_failures_min: Final = 100

# -- the peer ring ---------------------------------------------------------------------------------
ring_checkpoint_s: Final = 2.0
# Neighbours that would keep a copy; each costs as much as the first.
ring_neighbours_max: Final = 8
# Clocks of mappers may differ by so much, and a tuple be on its way for so long: the paper's L_n.
ring_latency_s: Final = 0.015
ring_beat_s: Final = 0.1
# A neighbour that was silent for so long is dead; less when the connection to it broke, as when its process dies.
# A machine that is busy may keep a process waiting for longer than the latter.
ring_silence_s: Final = 3.0
ring_suspect_s: Final = 0.5
# Thresholds of balancing: rows that wait in a node's queue, and the share of time in which it is busy.
ring_queue_rows_high: Final = 200_000
ring_queue_rows_low: Final = 20_000
ring_busy_high: Final = 0.8
ring_busy_low: Final = 0.5
# The share is that of the last so many seconds: a single piece of work may take many ticks.
ring_busy_over_s: Final = 1.0
# So often a node looks whether it has too much to do, or too little.
ring_balance_s: Final = 1.0
# Tuples that a node keeps for others, results that its sink has not taken, and batches that a mapper keeps.
ring_backup_bytes_max: Final = 512 * MIB
ring_results_bytes_max: Final = 64 * MIB
ring_mapper_bytes_max: Final = 64 * MIB
# Rows that a node processes before it listens again: at most so many, and fewer that take about so long.
ring_work_rows: Final = 65_536
ring_work_s: Final = 0.01
# So often a node says what it has done.
ring_figures_s: Final = 0.5

# -- paged state -----------------------------------------------------------------------------------
state_page_bytes_default: Final = 64 * KIB
state_page_bytes_choices: Final = (8 * KIB, 64 * KIB)
# A page manager with less memory asks for no huge pages: it would use little of each.
state_huge_pages_from_bytes: Final = 32 * MIB
# Page sets of one page manager, and pages of one set: both halves of a page id.
state_page_sets_max: Final = 65_536
state_pages_per_set_max: Final = 2**31 - 1
# Share of the machine's memory that a page manager may use unless it is told a bound.
state_memory_share_default: Final = 0.5
# Records of a batch that are looked up before they are changed: what they touch stays in the processor's cache.
state_block_records: Final = 4096
# Rows of a batch that a scan yields, at most, unless the caller says otherwise.
state_scan_records: Final = 65_536
# Checkpoints that one restore reads from. A checkpoint beyond that writes the pages of another one again.
state_generations_max: Final = 8
# An older checkpoint of whose pages a smaller share is still needed is written again with the next one.
state_live_share_min: Final = 0.5
# One thread writes or reads so much of a checkpoint in one go; pages are released piece by piece.
state_piece_bytes: Final = 4 * MIB
# Buffers of a piece; Linux takes 1024 in one call.
state_piece_buffers_max: Final = 256
# Memory for clones is asked for ahead in pieces of so many bytes, when so many more frames are used, or an eighth.
state_reserve_piece_bytes: Final = 16 * MIB
state_reserve_step_frames: Final = 16
state_workers_default: Final = 2
# Chunks of a checkpoint of pages in peacefs: pages can be changed again when their chunk has been written.
state_chunk_bytes_default: Final = 8 * MIB
# The number of checkpoints kept of a unit.
state_checkpoints_kept_default: Final = 2
# A checkpoint that waits for its turn checks so often whether it is still wanted.
state_turn_poll_s: Final = 0.05
state_index_bytes_max: Final = 512 * MIB

# -- the doctor ------------------------------------------------------------------------------------
# `peacefs doctor` waits so long for an answer of a service, and asks so many at once.
doctor_answer_timeout_s: Final = 20.0
doctor_probes_at_once: Final = 16
doctor_metrics_bytes_max: Final = 16 * MIB
doctor_settings_bytes_max: Final = 1 * MIB
# A clock that is off by more should be set; by more than the second, tokens and leases are judged wrongly.
doctor_clock_s: Final = 1.0
doctor_clock_broken_s: Final = 30.0
# Files and connections that a client and a service should be able to open, and the share that may be in use.
doctor_client_descriptors_min: Final = 1024
doctor_descriptors_min: Final = 8192
doctor_descriptors_share_max: Final = 0.8
# Fewer commits or chunks prove nothing; of more, this share may take longer than 100 ms.
doctor_durations_min: Final = 20
doctor_slow_share_max: Final = 0.2
# A disk is measured by so many fsyncs of a record, and by writing so much; and what it should reach.
doctor_fsyncs: Final = 32
doctor_fsync_record_bytes: Final = 4 * KIB
doctor_write_bytes: Final = 32 * MIB
doctor_fsync_s: Final = 0.02
doctor_write_bytes_per_second_min: Final = 50 * MIB
