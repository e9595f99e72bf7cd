from random import Random

from peacefs.coordinator.core import BecameReady, CoordinatorCore
from peacefs.coordinator.cluster.commands import Order
from peacefs.coordinator.metadata.epochs import Epochs
from peacefs.coordinator.metadata.model import ChunkRecord
from peacefs.protocol.ids import Numbering
from peacefs.protocol.limits import chunk_bytes_max, read_token_renewable_s
from peacefs.protocol.messages import DeleteChunks, Heartbeat, Register, Replica, ReportChunks, Usage

usage = Usage(10 * chunk_bytes_max, 0, 10 * chunk_bytes_max)
core = CoordinatorCore(0.0, Epochs(Numbering(1), 0.0), Random(1))
core.load([ChunkRecord(7, 1, 1000, 1, ("dn-1",))])
core.loaded()
core.register(0.0, Register("dn-1", "host", 1, "host", 2, "/rack", usage))
assert core.report(0.0, "dn-1", ReportChunks([Replica(7, 1, 1000)], True)) == []
assert core.tick(0.25) == [BecameReady(1)]


def deleted(commands):
    return [order for order in commands if isinstance(order, Order) and isinstance(order.message, DeleteChunks)]


now_s = 1.0
assert core.replaced(now_s, [ChunkRecord(7, 1, 1000, 1, ("dn-1",))]) == []  # readers may go on by their layout
gone = []
while now_s < read_token_renewable_s + 60:
    now_s += 1.0
    core.heartbeat(now_s, "dn-1", Heartbeat(usage))
    orders = deleted(core.tick(now_s))
    assert not orders or now_s >= read_token_renewable_s
    gone += orders
assert [replica.chunk for order in gone for replica in order.message.replicas] == [7]
