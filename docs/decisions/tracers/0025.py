from random import Random

from peacefs.coordinator.cluster.core import Cluster
from peacefs.coordinator.metadata.model import ChunkRecord
from peacefs.coordinator.limits import freed_chunks_kept_s
from peacefs.protocol.messages import Receipt, Register, ReportChunks, Usage, WrittenChunk

cluster = Cluster(0.0, Random(1))
usage = Usage(capacity_bytes=1 << 40, used_bytes=0, available_bytes=1 << 40)
cluster.register(0.0, Register("dn-1", "host", 1, "host", 2, "/rack", usage))
cluster.report(0.0, "dn-1", ReportChunks([], last=True))
found = lambda: [node.id for node in cluster.locations(7)]

with cluster.transient.publishing([WrittenChunk(7, 1, 1000, 0, [Receipt("dn-1", b"")])]):
    assert found() == ["dn-1"], "the commit may be visible now"
    record = ChunkRecord(7, 1, 1000, 3, ("dn-1",))
    cluster.published([record])
assert found() == ["dn-1"]
assert cluster.freed(0.0, [record]) == [] and found() == ["dn-1"], "somebody may have it open"
assert cluster.tick(freed_chunks_kept_s - 0.1, 0).orders == []
(order,) = cluster.tick(freed_chunks_kept_s, 0).orders
assert order.node == "dn-1" and found() == []
