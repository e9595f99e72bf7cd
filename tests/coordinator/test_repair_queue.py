"""The order of repair. Finding the next chunk needs no scan of all waiting chunks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.play import Play, record

from peacefs.coordinator.cluster.repair_queue import LowRedundancyQueue

_steps = st.lists(
    st.tuples(st.sampled_from(["mark", "mark", "discard", "postpone"]), st.integers(0, 9), st.integers(1, 3))
)


@given(_steps, st.sets(st.integers(0, 9)))
def test_it_is_a_list_sorted_by_replicas_left_and_then_by_waiting(
    steps: list[tuple[str, int, int]], left_out: set[int]
) -> None:
    low_redundancy, queue = LowRedundancyQueue(), list[tuple[int, int]]()
    for what, chunk, left in steps:
        present = [entry for entry in queue if entry[1] == chunk]
        if what == "mark" and present != [(left, chunk)]:
            low_redundancy.mark(chunk, left)
            queue = [entry for entry in queue if entry[1] != chunk] + [(left, chunk)]
        elif what == "discard":
            low_redundancy.discard(chunk)
            queue = [entry for entry in queue if entry[1] != chunk]
        elif what == "postpone" and present:
            low_redundancy.postpone(chunk)
            queue = [entry for entry in queue if entry[1] != chunk] + present
    expected = [chunk for _left, chunk in sorted(queue, key=lambda entry: entry[0])]
    assert list(low_redundancy) == expected
    assert len(low_redundancy) == len(expected)
    assert all(chunk in low_redundancy for chunk in expected)
    assert low_redundancy.first(2, but=left_out) == [chunk for chunk in expected if chunk not in left_out][:2]


def test_chunks_that_cannot_be_copied_now_do_not_hold_up_those_that_can(play: Play) -> None:
    """Three hundred chunks have their only replica on a silent datanode; one chunk has it on a live one."""
    play.join("quiet", "dn-1", "dn-2")
    play.open_for_business()
    play.publish([record(number, replication=2, hint=("quiet",)) for number in range(1, 301)])
    play.beating.discard("quiet")
    for ticked in play.ticks(4.0):
        for copy in ticked.copies:  # begun before the silence was known
            play.cluster.copy_finished(copy.chunk, copied=False)
    play.publish([record(1000, replication=2, hint=("dn-1",))])
    copies = [copy for ticked in play.ticks(4.0) for copy in ticked.copies if copy.chunk == 1000]
    assert [copy.target for copy in copies] == ["dn-2"]
