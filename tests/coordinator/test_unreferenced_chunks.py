"""Unreferenced chunks are counted without a scan, and found in ascending order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.play import Play, record

from peacefs.coordinator.cluster.core import garbage_chunks_per_tick
from peacefs.coordinator.cluster.unreferenced_chunks import UnreferencedChunks
from peacefs.coordinator.metadata.garbage import Garbage
from peacefs.protocol.ids import epoch_of, first_of_epoch
from peacefs.protocol.messages import DeleteChunks, Replica

NODES = ("a", "b", "c")
CHUNKS = [first_of_epoch(epoch) | number for epoch in (1, 2, 3) for number in (1, 2)]

_steps = st.lists(
    st.tuples(
        st.sampled_from(["hold", "hold", "hold", "drop", "claim", "lose", "below"]),
        st.sampled_from(NODES),
        st.sampled_from(CHUNKS),
        st.integers(0, 9),
    ),
    max_size=60,
)


@given(_steps)
def test_it_is_what_a_plain_table_would_be(steps: list[tuple[str, str, int, int]]) -> None:
    unreferenced, table = UnreferencedChunks(), dict[tuple[str, int], Replica]()
    for what, node, chunk, length in steps:
        match what:
            case "hold":
                unreferenced.add_replica(node, Replica(chunk, 1, length))
                table[node, chunk] = Replica(chunk, 1, length)
            case "drop":
                unreferenced.remove_replica(node, chunk)
                table.pop((node, chunk), None)
            case "claim":
                expected = {n: table.pop((n, c)) for n, c in list(table) if c == chunk}
                assert unreferenced.take(chunk) == expected
            case "lose":
                unreferenced.remove_node(node)
                unreferenced.remove_lost(1000)
                table = {key: replica for key, replica in table.items() if key[0] != node}
            case "below":
                found = list(unreferenced.below(Garbage(chunk), 2))
                lowest = sorted({c for _n, c in table if c < chunk})[:2]
                assert sorted(found, key=str) == sorted(
                    ((n, r) for (n, c), r in table.items() if c in lowest), key=str
                )
        counts = unreferenced.counts(epoch=2)
        early = [key for key in table if epoch_of(key[1]) < 2]
        assert counts == (
            len({c for _n, c in table}),
            len(table),
            sum(replica.length for replica in table.values()),
            len({c for _n, c in early}),
            sum(table[key].length for key in early),
        )


def test_writes_that_come_and_go_leave_nothing_behind() -> None:
    unreferenced = UnreferencedChunks()
    for chunk in range(1, 20_000):
        unreferenced.add_replica("a", Replica(chunk, 1, 10))
        unreferenced.take(chunk)
    assert len(unreferenced._lowest) <= 1001
    assert unreferenced.counts(1) == (0, 0, 0, 0, 0)


def test_a_tick_gives_a_bounded_number_of_deletions_and_the_next_ones_the_rest(play: Play) -> None:
    garbage = tuple(Replica(number, 1, 10) for number in range(1, garbage_chunks_per_tick + 501))
    play.join("dn-1", holding=garbage)
    play.open_for_business()
    play.publish([record(1_000_000, replication=1, hint=("dn-1",))])
    play.floor = 100_000
    deleted = [
        sum(len(order.message.replicas) for order in ticked.orders if isinstance(order.message, DeleteChunks))
        for ticked in play.let_pass(1.5)
    ]
    assert deleted == [garbage_chunks_per_tick, 500, 0]
