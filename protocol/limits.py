"""Limits and deadlines that several packages share. Names contain their unit.

A limit that only one module uses is in that module. A limit that several modules of one package use is in the
package's `limits`. Most services accept other values at construction.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# -- topology ---------------------------------------------------------------------------------------
# Calibration measures each disk with these numbers of concurrent incoming streams, one number after another.
calibration_streams: Final = (1, 2, 4, 8)

# -- policies: simulated and planned ----------------------------------------------------------------
plan_requests_max: Final = 2000
plan_chunks_max: Final = 20_000
plan_timeout_s: Final = 30.0
# How long a dry run waits for the previous one to finish.
plan_queue_timeout_s: Final = 5.0

# -- chunks -----------------------------------------------------------------------------------------
chunk_bytes_max: Final = 64 * MIB
checksum_block_bytes: Final = 64 * KIB
# Maximum size of a writer's packet: small enough to stay in the processor's cache while the receiver verifies,
# forwards and stores it. Readers that must copy data also take this much at once.
packet_bytes: Final = 256 * KIB
# Maximum size of a packet that goes to a reader straight from the file, and of a piece that a reader receives
# straight into its own buffer. Large, because each packet and each piece needs the interpreter's lock again.
read_packet_bytes: Final = 4 * MIB
# Chunks up to this size share segment files; larger ones get a file each.
small_chunk_bytes_max: Final = 256 * KIB
replication_default: Final = 3
# HDFS's own limit. A pipeline has at most `pipeline_hops_max` datanodes; repair adds the remaining replicas.
replication_max: Final = 512
pipeline_hops_max: Final = 16

# -- frames -----------------------------------------------------------------------------------------
# The longest frame that is accepted from a peer before its handshake is complete.
handshake_frame_bytes_max: Final = 4 * KIB
# The most data that one seal covers: as much as a reader that must copy takes at once.
sealed_record_bytes_max: Final = packet_bytes
# A connection's first read, before it knows the length of the frame. Small frames arrive whole in one call.
frame_ahead_bytes: Final = 16 * KIB
# Maximum size of a chunk in a batch. Its whole frame arrives in one such call.
batched_chunk_bytes_max: Final = frame_ahead_bytes - KIB
# Memory for clients' unfinished frames in a service. Above it, the oldest unfinished frame is dropped.
begun_frames_bytes_max: Final = 128 * MIB
# A frame must be complete within this time after its first byte, so that slow senders cannot hold memory.
begun_frame_timeout_s: Final = 15.0

# -- scheduling -------------------------------------------------------------------------------------
# Writes of up to this size use the fast lane: they start at once and never wait for a grant.
fast_lane_bytes_max: Final = 1 * MIB
# Concurrent incoming chunks of a datanode, and concurrent chunks of a writer, if no capacities are configured.
streams_per_node_default: Final = 64
# How far a datanode's clock may be behind the coordinator's.
grant_clock_slack_s: Final = 5.0
# How long the coordinator holds a request for grants open when it cannot push grants to the client.
grant_hold_s: Final = 2.0
# Concurrent reads of checkpoints at one datanode, over all clients (SGuard, Table 8); chunks per request.
readers_per_datanode_max: Final = 2
reads_stated_max: Final = 128

# -- deadlines --------------------------------------------------------------------------------------
connect_timeout_s: Final = 3.0
handshake_timeout_s: Final = 5.0
# A hop that is silent for this long in the middle of a chunk is considered dead.
hop_timeout_s: Final = 15.0
# Longer than a starting coordinator holds a call, but shorter than the 60 s for which Hadoop's client waits.
control_call_timeout_s: Final = 50.0
# Long, because a Spark task may write one file for hours.
write_token_lifetime_s: Final = 6 * 3600.0
# A reader's permissions are checked again this often, so a revocation takes effect within this time. A reader that
# was silent for longer than `read_token_renewable_s` must open the file again.
read_token_lifetime_s: Final = 60.0
read_token_renewable_s: Final = 3600.0
# A chunk that no file refers to becomes garbage if its writer does not mention it for this time. Writers name the
# chunks that they still hold once per `keep_chunks_interval_s`. Time without a serving coordinator does not count.
unreferenced_chunk_kept_s: Final = 120.0
keep_chunks_interval_s: Final = 30.0
# Maximum number of chunks per KeepChunks call.
kept_chunks_per_call: Final = 1000
# How long to wait for the reason from a hop that stopped, and for a last message to be delivered.
last_word_timeout_s: Final = 1.0
# A producer that sends nothing for this long is given up: its token has expired by then.
source_silence_s: Final = write_token_lifetime_s
# How often a writer renews its lease.
lease_renewal_s: Final = 15.0
idle_connection_timeout_s: Final = 120.0
# The space that a datanode leaves free on each disk for other programs.
reserved_bytes_default: Final = 1024 * MIB

# -- liveness ---------------------------------------------------------------------------------------
heartbeat_interval_s: Final = 1.0
dead_after_s: Final = 10.0
# After its start a coordinator holds CREATE and OPEN for at most this long, until its datanodes have reported.
startup_hold_s: Final = 45.0

# -- repair -----------------------------------------------------------------------------------------
# The rate at which a datanode sends copies for repair; HDFS uses the same rate for balancing.
copy_bytes_per_second: Final = 100 * MIB

# -- taken out of service ---------------------------------------------------------------------------
maintenance_hours_max: Final = 30 * 24.0

# -- balancing --------------------------------------------------------------------------------------
# HDFS: dfs.balancer's threshold, and dfs.datanode.balance.bandwidthPerSec.
balance_threshold_percent_default: Final = 10.0
balance_bytes_per_second_default: Final = 100 * MIB
balance_bytes_per_second_min: Final = 64 * KIB
balance_silence_s: Final = 10.0
# A balancing run stops after this many consecutive failed copies.
balance_failures_max: Final = 20

# -- the coordinator's background tasks -------------------------------------------------------------
# Reports warn when the metadata disk has less free space than this: the log alone may need a quarter of it.
metadata_room_low_bytes: Final = 64 * MIB

# -- the event loop and threads ---------------------------------------------------------------------
# The interpreter's default of 5 ms lets busy threads hold up the event loop of their process.
thread_switch_interval_s: Final = 0.0005

# -- scrubbing --------------------------------------------------------------------------------------
# HDFS: dfs.datanode.scan.period.hours (three weeks) and dfs.block.scanner.volume.bytes.per.second.
scrub_period_s: Final = 21 * 86_400.0
scrub_bytes_per_second: Final = 1 * MIB

# -- bounds on memory and work ----------------------------------------------------------------------
# How long a client waits while the coordinator copies its database for a backup.
backup_timeout_s: Final = 1800.0

# -- client -----------------------------------------------------------------------------------------
# Threads of the I/O service that write or read one checkpoint.
checkpoint_workers_default: Final = 4
checkpoint_workers_max: Final = 64

# -- spark ------------------------------------------------------------------------------------------
java_version_min: Final = 17

# -- runs, reports and checkpoints ------------------------------------------------------------------
report_text_characters_max: Final = 1000
# Maximum number of entries in a checkpoint, and in a tree that is searched for checkpoints.
checkpoint_entries_max: Final = 2_000_000
# Time limit for an inspection of checkpoints that was requested over REST.
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
# Lifetimes of the trial CA that `peacefs certificates` makes, and of the certificates that it signs.
trial_authority_days: Final = 365
trial_certificate_days_default: Final = 90
coordinator_http_port_default: Final = 9870
coordinator_node_port_default: Final = 9820
coordinator_hdfs_port_default: Final = 8020
datanode_http_port_default: Final = 9864
datanode_data_port_default: Final = 9866

# -- credentials ------------------------------------------------------------------------------------
# Bearer tokens must fit into an HTTP header and into a Hello message.
bearer_token_characters_max: Final = 2048
bearer_token_default_s: Final = 12 * 3600.0
# Lifetime of a token granted to an OAuth2 client. Hadoop's client fetches the next one 30 s before the end.
granted_token_default_s: Final = 3600.0

# -- dataflows --------------------------------------------------------------------------------------
# After this much silence of a node, its units are started on other nodes.
dataflow_node_timeout_s: Final = 0.8

# -- paged state ------------------------------------------------------------------------------------
state_page_bytes_choices: Final = (8 * KIB, 64 * KIB)
# A restore reads from at most this many checkpoints. When the limit is reached, a new checkpoint also rewrites
# pages of an older one, which is then no longer needed.
state_generations_max: Final = 8
