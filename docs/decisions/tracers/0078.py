from random import Random

from peacefs.peace.policies.interface import Submitted
from peacefs.peace.policies.ledger import WriteSet
from peacefs.peace.policies.timely import TimelyPolicy
from peacefs.peace.simulator.scenarios import paper_cluster
from peacefs.protocol.values.write_classes import WriteClass

CHUNK = 64_000_000
policy = TimelyPolicy(paper_cluster(), Random(1))


def submit(name, write_class, now_s):
    return policy.handle([Submitted(WriteSet(name, None, 3, (CHUNK,) * 99, write_class=write_class))], now_s)


# An urgent set has been seen: from now on bulk writers, however many, use one slot of each disk.
urgent = submit("urgent", WriteClass.BLOCKING, 0.0)
bulk = [grant for number in range(20) for grant in submit(f"bulk {number}", WriteClass.BULK, 1.0)]
nodes = [node for grant in bulk for node in grant.chain]
assert bulk and len(nodes) == len(set(nodes))
# So the next urgent set finds room at once.
assert submit("next", WriteClass.BLOCKING, 2.0)
