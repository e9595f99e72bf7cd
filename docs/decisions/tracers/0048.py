from peacefs.coordinator.failover.leadership import Leadership
from peacefs.coordinator.journal.port import Member
from peacefs.coordinator.rpc.datanode_links import DatanodeLinks
from peacefs.protocol.errors import Standby
from peacefs.protocol.messages import DeleteChunks, Replica

now_s = 0.0
one = Leadership(lambda: now_s, Member("a:9870"))
one.begin(7)
one.confirmed(now_s)
assert one.may_answer
now_s = 1.6
assert one.leads and not one.may_answer  # it has not heard yet that another one leads

other = Leadership(lambda: now_s, Member("b:9870"))
other.seen(Member("a:9870"))
try:
    other.refuse_standby()
except Standby as refusal:
    assert "a:9870 leads" in refusal.message
else:
    raise AssertionError("a standby has answered")


class Link:
    name = "dn-1"
    sent = []

    def write(self, message, tag=0):
        self.sent.append(message)


links, link = DatanodeLinks(), Link()
links.registered(link)
links.stand_by()
links.send("dn-1", DeleteChunks([Replica(1, 1, 1)]))
assert link.sent == []
links.lead(lambda: 7)
links.send("dn-1", DeleteChunks([Replica(1, 1, 1)]))
assert link.sent[0].epoch == 7
