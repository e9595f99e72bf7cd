from random import Random

from peacefs.coordinator.scheduling.write_sets import WriteSetRequest
from peacefs.coordinator.scheduling.scheduler import Scheduling
from peacefs.protocol.ids import Numbering

scheduling = Scheduling(Numbering(1), Random(1), streams_per_node=1)
scheduling.use(0.0, scheduling.undescribed.of({f"n{number}": f"/rack-{number % 2}" for number in range(4)}))


def state(name, now_s):
    request = WriteSetRequest(name, None, None, replication=3, chunks={0: 64 << 20})
    return scheduling.state(now_s, request), scheduling.held_grants(name, {0})


_, (first,) = state("http a", 0.0)
assert state("http b", 1.0)[1] == [] and scheduling.expected_start_s("http b") > 0
asked = {effect.node for effect in scheduling.tick(500.0)}
assert asked == set(first.nodes)  # time alone gives nothing back
state("http b", 500.0)
for node in first.nodes:
    assert first in scheduling.grants
    scheduling.answered(501.0, node, [first.chunk], {})
assert [grant.write_set for grant in scheduling.grants] == ["http b"]
