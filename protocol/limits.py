"""Every limit and deadline of the project, in one place; the unit is the last word of each name.

Services may be given other values at construction; nothing else defines a limit.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# -- names ---------------------------------------------------------------------------------------
# HDFS: dfs.namenode.fs-limits.max-component-length (255, counted in UTF-8 bytes) and MAX_PATH_LENGTH.
name_bytes_max: Final = 255
path_characters_max: Final = 8000
path_depth_max: Final = 1000
list_page_entries: Final = 1000

# -- chunks --------------------------------------------------------------------------------------
chunk_bytes_max: Final = 64 * MIB
checksum_block_bytes: Final = 64 * KIB
packet_bytes: Final = 1 * MIB
# Chunks up to this size share segment files; larger ones get a file each.
small_chunk_bytes_max: Final = 256 * KIB
segment_bytes_max: Final = 64 * MIB
replication_default: Final = 3
replication_max: Final = 16
min_replication: Final = 1

# -- frames --------------------------------------------------------------------------------------
frame_header_bytes_max: Final = 1 * MIB
frame_payload_bytes_max: Final = 4 * MIB
report_chunks_per_frame: Final = 8000

# -- deadlines -----------------------------------------------------------------------------------
connect_timeout_s: Final = 3.0
hello_timeout_s: Final = 5.0
# A hop that says nothing for this long in the middle of a chunk is taken for dead.
hop_timeout_s: Final = 15.0
# Each hop further from the writer gives up a little earlier, so that the one nearest to the fault names it.
hop_timeout_step_s: Final = 2.0
control_call_timeout_s: Final = 20.0
write_token_lifetime_s: Final = 900.0
read_token_lifetime_s: Final = 3600.0
idle_connection_timeout_s: Final = 120.0
write_attempts_max: Final = 4
read_rounds_max: Final = 2

# -- liveness ------------------------------------------------------------------------------------
heartbeat_interval_s: Final = 1.0
suspect_after_s: Final = 3.0
dead_after_s: Final = 10.0
reregister_backoff_s: Final = 0.5
reregister_backoff_max_s: Final = 5.0
# A coordinator that has just started holds CREATE and OPEN this long while datanodes report.
startup_hold_s: Final = 45.0
startup_reported_fraction: Final = 0.999

# -- repair --------------------------------------------------------------------------------------
repairs_in_flight_per_node: Final = 2
repair_timeout_s: Final = 120.0
deletes_per_command: Final = 1000
reclaim_entries_per_commit: Final = 500

# -- bounds on memory and work ---------------------------------------------------------------------
gateway_first_buffer_bytes: Final = 1 * MIB
gateway_buffer_bytes_max: Final = 512 * MIB
gateway_threads: Final = 32
data_connections_max: Final = 1024
commit_batch_max: Final = 256
commit_queue_max: Final = 10_000
control_requests_in_flight_max: Final = 4096

# -- HTTP ------------------------------------------------------------------------------------------
# The JDK's pool keeps idle connections about 5 s, others longer; a server that closes first breaks requests.
http_keep_alive_s: Final = 75
http_first_byte_timeout_s: Final = 60.0
http_body_idle_timeout_s: Final = 60.0
http_url_bytes_max: Final = 64 * KIB
coordinator_http_port_default: Final = 9870
coordinator_node_port_default: Final = 9820
datanode_http_port_default: Final = 9864
datanode_data_port_default: Final = 9866
