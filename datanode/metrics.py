"""A datanode's own Prometheus metrics that count events, in addition to the metrics of every service."""

from __future__ import annotations

from prometheus_client import Counter

from peacefs.runtime.counters import QuickCounter, QuickHistogram, fsyncs, registry
from peacefs.service.metrics import DeprecatedName

registry.register(fsyncs)

chunks_written = QuickCounter("peacefs_chunks_written", "Chunks sealed")
bytes_written = QuickCounter("peacefs_written_bytes", "Bytes of sealed chunks")
chunks_forwarded = QuickCounter("peacefs_chunks_forwarded", "Chunks that a successor acknowledged")
bytes_forwarded = QuickCounter("peacefs_forwarded_bytes", "Bytes of these")
reads_served = QuickCounter("peacefs_chunk_reads", "Requests to read a chunk that were begun")
descriptors_shared = Counter(
    "peacefs_descriptors_shared", "Replicas whose open file was given to a reader on this host", registry=registry
)
DeprecatedName("peacefs_chunks_lent", descriptors_shared).publish()
bytes_read = QuickCounter("peacefs_read_bytes", "Bytes sent to readers of chunks")
local_small_reads = Counter(
    "peacefs_local_small_reads", "Small files that the gateway read here, or tried to", ["by"], registry=registry
)
DeprecatedName("peacefs_own_reads", local_small_reads).publish()
pipeline_failures = Counter(
    "peacefs_pipeline_failures",
    "Chunks that were not acknowledged, by what went wrong",
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
compactions = Counter("peacefs_compactions", "Segments whose living records were copied", registry=registry)
bytes_rewritten = Counter("peacefs_compaction_rewritten_bytes", "Bytes of these records", registry=registry)
segments_removed = Counter(
    "peacefs_segments_removed", "Segments removed, nothing in them being alive", registry=registry
)
segment_bytes_removed = Counter("peacefs_segment_removed_bytes", "Bytes that these took", registry=registry)
disk_faults = Counter(
    "peacefs_disk_faults",
    "Operations that a disk failed, without its probes",
    ["directory"],
    registry=registry,
)
scrubbed = Counter("peacefs_scrubbed_replicas", "Replicas that scrubbing has looked at", registry=registry)
scrub_read_bytes = Counter("peacefs_scrub_read_bytes", "Bytes that it has read for that", registry=registry)
