"""Limits and deadlines that several packages share; the unit is the last word of each name.

A limit with one user is in the module of its user. A limit that several modules of one package share is in the
package's `limits`. Services may be given other values at construction.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# -- topology ---------------------------------------------------------------------------------------
# Incoming streams with which a disk is measured, one after the other.
calibration_streams: Final = (1, 2, 4, 8)

# -- policies: simulated and planned ----------------------------------------------------------------
plan_requests_max: Final = 2000
plan_chunks_max: Final = 20_000
plan_timeout_s: Final = 30.0
# A dry run waits so long for the one before it.
plan_queue_timeout_s: Final = 5.0

# -- chunks -----------------------------------------------------------------------------------------
chunk_bytes_max: Final = 64 * MIB
checksum_block_bytes: Final = 64 * KIB
# The most that a writer puts into a packet: so little that it is still in the processor's cache when who has
# received it verifies it, sends it on or stores it. Who reads takes as much at once where it has to copy it.
packet_bytes: Final = 256 * KIB
# The most of a large chunk that is sent to a reader as one packet, unread, and that a reader takes at once where
# it wants it: each packet and each piece costs turns at the interpreter's lock.
read_packet_bytes: Final = 4 * MIB
# Chunks up to this size share segment files; larger ones get a file each.
small_chunk_bytes_max: Final = 256 * KIB
replication_default: Final = 3
# HDFS's own limit. A pipeline is no longer than the second; repair makes what a file is to have beyond it.
replication_max: Final = 512
pipeline_hops_max: Final = 16

# -- frames -----------------------------------------------------------------------------------------
# No longer frame is accepted from a peer that has not completed its handshake.
handshake_frame_bytes_max: Final = 4 * KIB
# One seal covers so much between services: as much as a reader takes at once where it has to copy it.
sealed_record_bytes_max: Final = packet_bytes
# A connection reads so much with one call before it knows how long the frame is: a small frame as a whole.
frame_ahead_bytes: Final = 16 * KIB
# The memory that clients' unfinished frames may hold in a service; over it, the one begun longest ago is dropped.
begun_frames_bytes_max: Final = 128 * MIB
# A frame that has begun has ended after this, however its bytes drip.
begun_frame_timeout_s: Final = 15.0

# -- scheduling -------------------------------------------------------------------------------------
# A write that fits this goes out at once, through the fast lane: it never waits for a slot.
fast_lane_bytes_max: Final = 1 * MIB
# Incoming chunks of a datanode, and chunks of a writer, where nobody has said what disks and links carry.
streams_per_node_default: Final = 64
# Clocks of datanodes may be behind by this much.
grant_clock_slack_s: Final = 5.0
# A request of a writer without a framed connection is held open so long.
grant_hold_s: Final = 2.0
# Recovery reads: at one datanode, over all clients.
readers_per_datanode_max: Final = 2
reads_stated_max: Final = 128

# -- deadlines --------------------------------------------------------------------------------------
connect_timeout_s: Final = 3.0
handshake_timeout_s: Final = 5.0
# A hop that says nothing for this long in the middle of a chunk is taken for dead.
hop_timeout_s: Final = 15.0
# Longer than a starting coordinator holds a call, shorter than the 60 s a Hadoop client waits for an answer.
control_call_timeout_s: Final = 50.0
# A Spark task may write one file for hours.
write_token_lifetime_s: Final = 6 * 3600.0
# A reader's rights are looked at again this often, so that rights that were taken away are gone after this time. A
# reader that has been silent for the longer time opens the file again.
read_token_lifetime_s: Final = 60.0
read_token_renewable_s: Final = 3600.0
# A chunk that no file refers to is garbage after this time without a word of its writer, who says so often that it
# still holds its chunks, from the first such interval on. Counted is time in which a coordinator served.
unreferenced_chunk_kept_s: Final = 120.0
keep_chunks_interval_s: Final = 30.0
# A call names so many of them at most.
kept_chunks_per_call: Final = 1000
# A hop that broke off has so long to give its reason.
last_word_timeout_s: Final = 1.0
# A producer that brings no byte of its file for this long is given up: its token has expired by then.
source_silence_s: Final = write_token_lifetime_s
# A writer renews its lease so often; after the longer silence another may take the lease (HDFS's soft limit).
lease_renewal_s: Final = 15.0
idle_connection_timeout_s: Final = 120.0
# The room that a datanode leaves free on its disk for others.
reserved_bytes_default: Final = 1024 * MIB

# -- liveness ---------------------------------------------------------------------------------------
heartbeat_interval_s: Final = 1.0
dead_after_s: Final = 10.0
# A coordinator that has just started holds CREATE and OPEN this long while datanodes report.
startup_hold_s: Final = 45.0

# -- repair -----------------------------------------------------------------------------------------
# A datanode's rate for sending copies, the same as HDFS's for balancing. With less than the minimum a copy of a
# large chunk would not end before it is given up.
copy_bytes_per_second: Final = 100 * MIB

# -- taken out of service ---------------------------------------------------------------------------
maintenance_hours_max: Final = 30 * 24.0

# -- balancing --------------------------------------------------------------------------------------
# HDFS: dfs.balancer's threshold, and dfs.datanode.balance.bandwidthPerSec.
balance_threshold_percent_default: Final = 10.0
balance_bytes_per_second_default: Final = 100 * MIB
balance_bytes_per_second_min: Final = 64 * KIB
balance_silence_s: Final = 10.0
# Copies that fail one after the other before a run is given up.
balance_failures_max: Final = 20

# -- the coordinator's background tasks -------------------------------------------------------------
# Below this a report says what the disk of the metadata has left: the log alone may take a quarter of it.
metadata_room_low_bytes: Final = 64 * MIB

# -- the event loop and threads ---------------------------------------------------------------------
# The interpreter's default of 5 ms lets busy threads hold up the event loop of their process.
thread_switch_interval_s: Final = 0.0005

# -- scrubbing --------------------------------------------------------------------------------------
# HDFS: dfs.datanode.scan.period.hours (three weeks) and dfs.block.scanner.volume.bytes.per.second.
scrub_period_s: Final = 21 * 86_400.0
scrub_bytes_per_second: Final = 1 * MIB

# -- bounds on memory and work ----------------------------------------------------------------------
# A client waits so long for the coordinator to make its copy.
backup_timeout_s: Final = 1800.0

# -- client -----------------------------------------------------------------------------------------
# Threads with which the I/O service writes or reads a checkpoint, and how many of them read from one datanode: a
# disk gives less to more (SGuard's Table 8).
checkpoint_workers_default: Final = 4
checkpoint_workers_max: Final = 64

# -- spark ------------------------------------------------------------------------------------------
java_version_min: Final = 17

# -- runs, reports and checkpoints ------------------------------------------------------------------
report_text_characters_max: Final = 1000
# The most entries of a checkpoint, and of a tree that is searched for checkpoints.
checkpoint_entries_max: Final = 2_000_000
# A look at checkpoints that the coordinator was asked for over REST: how long it may take and wait, and say.
checkpoint_look_timeout_s: Final = 60.0

# -- supervision ------------------------------------------------------------------------------------
supervised_restarts_default: Final = 10
supervised_restarts_max: Final = 1_000_000

# -- HTTP -------------------------------------------------------------------------------------------
tcp_keepalive_idle_s: Final = 60
# The longest URL that httptools can parse.
http_url_bytes_max: Final = 64 * KIB - 1
tls_handshake_timeout_s: Final = 10.0
tls_renewal_warning_days: Final = 14.0
# The trial CA that `peacefs certificates` makes, and what it signs.
trial_authority_days: Final = 365
trial_certificate_days_default: Final = 90
coordinator_http_port_default: Final = 9870
coordinator_node_port_default: Final = 9820
datanode_http_port_default: Final = 9864
datanode_data_port_default: Final = 9866

# -- credentials ------------------------------------------------------------------------------------
# A bearer token travels in a head, and in a hello.
bearer_token_characters_max: Final = 2048
bearer_token_default_s: Final = 12 * 3600.0
# Granted to OAuth2 clients. Hadoop's client fetches another half a minute before one ends.
granted_token_default_s: Final = 3600.0

# -- dataflows --------------------------------------------------------------------------------------
# A node may be silent so long before its units begin elsewhere.
dataflow_node_timeout_s: Final = 0.8

# -- paged state ------------------------------------------------------------------------------------
state_page_bytes_choices: Final = (8 * KIB, 64 * KIB)
# Checkpoints that one restore reads from. A checkpoint beyond that writes the pages of another one again.
state_generations_max: Final = 8
