import itertools

from peacefs.dataflow.ring.arrangement import arrange
from peacefs.dataflow.ring.coverage import contains
from peacefs.dataflow.ring.tokens import RING
from peacefs.dataflow.ring.view import RingMember, RingView
from dataclasses import replace

names = [f"node-{number}" for number in range(1, 6)]
ring = RingView(1, arrange(names, 1))
before = {arc.interval: arc.now for arc in ring.arcs}

# In whichever order the news of two deaths come, the owners are the same: those that held a copy.
dead = [replace(ring.members[name], gone=True) for name in ("node-2", "node-4")]
after = []
for order in itertools.permutations([*dead, *dead]):
    view = RingView(1, ring.members.values())
    for member in order:
        view.merge([member])
    after.append({arc.interval: arc.now for arc in view.arcs})
assert all(each == after[0] for each in after)
assert all(owners[0] in before[interval] for interval, owners in after[0].items())

# Who comes back with an old entry, however new its version, is still gone.
view.merge([replace(ring.members["node-2"], version=99)])
assert view.is_gone("node-2")

# A node that moves changes nothing until it says that it has: then half of the interval before is its own.
moving = replace(ring.members["node-2"], moves_to=RING // 10, version=2)
ring.merge([moving])
half = ring.arc_at(RING // 10)
assert (half.owner, half.next[0]) == ("node-1", "node-2")
assert set(half.holders) == {"node-1", "node-2", "node-3"}
ring.merge([replace(moving, token=moving.moves_to, moves_to=None, version=3)])
assert ring.arc_at(RING // 10).now == ("node-2", "node-3")

# A spare is no member of any interval.
ring.merge([RingMember("node-6", version=1)])
assert "node-6" not in ring.ring

# A checkpoint goes with what lies between its base and what it contains.
base, mine, later = {"m": 3}, {"m": 5}, {"m": 9}
assert contains(mine, base) and contains(later, mine) and not contains(mine, later)
