"""A datanode's own Prometheus metrics that count events, in addition to the metrics of every service."""

from __future__ import annotations

from prometheus_client import Counter

from peacefs.runtime.counters import QuickCounter, QuickHistogram, fsyncs, registry
from peacefs.service.metrics import DeprecatedName

registry.register(fsyncs)

chunks_written = QuickCounter("peacefs_chunks_written", "Chunks sealed")
bytes_written = QuickCounter("peacefs_written_bytes", "Bytes of sealed chunks")
chunks_forwarded = QuickCounter("peacefs_chunks_forwarded", "Chunks forwarded and acknowledged by a successor")
bytes_forwarded = QuickCounter("peacefs_forwarded_bytes", "Bytes forwarded and acknowledged by a successor")
reads_served = QuickCounter("peacefs_chunk_reads", "Started requests to read a chunk")
descriptors_shared = Counter(
    "peacefs_descriptors_shared", "Replicas whose open file was given to a reader on this host", registry=registry
)
DeprecatedName("peacefs_chunks_lent", descriptors_shared).publish()
bytes_read = QuickCounter("peacefs_read_bytes", "Bytes sent to readers of chunks")
local_small_reads = Counter(
    "peacefs_local_small_reads",
    "Small files that the gateway read, or tried to read, from its own disk",
    ["by"],
    registry=registry,
)
DeprecatedName("peacefs_own_reads", local_small_reads).publish()
pipeline_failures = Counter(
    "peacefs_pipeline_failures",
    "Chunks that were not acknowledged, by error",
    ["reason"],
    registry=registry,
)
seal_seconds = QuickHistogram(
    "peacefs_seal_seconds",
    "Time to make a chunk durable, or those of a batch",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
)
segment_batch_records = QuickHistogram(
    "peacefs_segment_batch_records",
    "Small chunks that one append and one fsync of a segment made durable",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
)
compactions = Counter(
    "peacefs_compactions", "Segments whose live records were copied by compaction", registry=registry
)
bytes_rewritten = Counter(
    "peacefs_compaction_rewritten_bytes", "Bytes of live records copied by compaction", registry=registry
)
segments_removed = Counter(
    "peacefs_segments_removed", "Segments removed because no record in them was live", registry=registry
)
segment_bytes_removed = Counter("peacefs_segment_removed_bytes", "Bytes of removed segments", registry=registry)
disk_faults = Counter(
    "peacefs_disk_faults",
    "Disk operations that failed, without probes",
    ["directory"],
    registry=registry,
)
scrubbed = Counter("peacefs_scrubbed_replicas", "Replicas verified by scrubbing", registry=registry)
scrub_read_bytes = Counter("peacefs_scrub_read_bytes", "Bytes read by scrubbing", registry=registry)
