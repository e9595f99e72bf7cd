"""The health of a chunk and of a file, held against a table written by hand."""

from __future__ import annotations

import pytest
from support.play import USAGE, Play, record

from peacefs.coordinator.cluster.chunk_map import ChunkState
from peacefs.coordinator.cluster.health import HealthCheck, judge_chunk, judge_cluster
from peacefs.protocol.limits import fsck_chunks_shown_max
from peacefs.protocol.messages import Heartbeat, Replica
from peacefs.protocol.values.fsck_findings import ClusterFindings, Finding, Tally

RACK = {"a": "/1", "b": "/1", "c": "/1", "x": "/2", "y": "/2"}

OVER, MISPLACED, UNDER, CORRUPT, MISSING = Finding


@pytest.mark.parametrize(
    ("wanted", "good", "corrupt", "racks", "expected"),
    [
        # As it should be.
        (3, "abx", "", 2, []),
        (3, "axy", "", 2, []),
        (2, "ax", "", 2, []),
        (1, "a", "", 2, []),
        # All on one rack is right where there is no other.
        (3, "abc", "", 1, []),
        (3, "abc", "", 2, [MISPLACED]),
        (2, "xy", "", 2, [MISPLACED]),
        # Lacking; of one replica nobody can say that it is on one rack only.
        (3, "ax", "", 2, [UNDER]),
        (3, "ab", "", 2, [MISPLACED, UNDER]),
        (3, "a", "", 2, [UNDER]),
        # Too many.
        (2, "abx", "", 2, [OVER]),
        (2, "abc", "", 2, [OVER, MISPLACED]),
        (1, "ax", "", 2, [OVER]),
        # A corrupt replica counts for none.
        (3, "abx", "y", 2, [CORRUPT]),
        (3, "ax", "y", 2, [UNDER, CORRUPT]),
        (2, "abx", "y", 2, [OVER, CORRUPT]),
        (3, "ab", "c", 2, [MISPLACED, UNDER, CORRUPT]),
        # Nothing to read from: worse than, and not also, too few.
        (3, "", "", 2, [MISSING]),
        (3, "", "abx", 2, [CORRUPT, MISSING]),
        (1, "", "", 0, [MISSING]),
    ],
)
def test_a_chunk_is_judged(wanted: int, good: str, corrupt: str, racks: int, expected: list[Finding]) -> None:
    state = ChunkState(1, 1, 1000, wanted, holders=tuple(good), corrupt=tuple(corrupt))
    assert judge_chunk(state, state.holders, RACK.get, racks) == expected


@pytest.mark.parametrize(
    ("wanted", "staying", "leaving", "expected"),
    [
        (3, "abx", "y", []),
        (3, "ax", "b", [UNDER]),
        (3, "", "a", [UNDER]),
        (3, "abxy", "c", [OVER]),
        (2, "ab", "x", [MISPLACED]),
    ],
)
def test_a_replica_that_is_about_to_leave_can_be_read_and_counts_for_nothing_else(
    wanted: int, staying: str, leaving: str, expected: list[Finding]
) -> None:
    state = ChunkState(1, 1, 1000, wanted, holders=(*staying, *leaving))
    assert judge_chunk(state, list(staying), RACK.get, 2) == expected


def test_the_worst_finding_is_the_last_of_the_list() -> None:
    assert list(Finding) == [OVER, MISPLACED, UNDER, CORRUPT, MISSING]
    assert Tally(chunks_with={UNDER: 7, CORRUPT: 1, OVER: 2}).worst is CORRUPT
    assert Tally().worst is None


def test_a_file_is_as_bad_as_its_worst_chunk(play: Play) -> None:
    play.join("dn-1", "dn-2", rack="/1")
    play.join("dn-3", rack="/2")
    play.open_for_business()
    play.publish(
        [
            record(1, hint=("dn-1", "dn-2", "dn-3")),
            record(2, hint=("dn-1", "dn-3")),
            record(3, hint=("dn-1", "dn-2", "dn-3")),
            record(4, hint=()),
        ]
    )
    play.cluster.heartbeat(play.now_s, "dn-2", Heartbeat(USAGE, corrupt=[Replica(3, 1, 1000)]))
    judge = HealthCheck(play.cluster)
    judgement = judge.file("/f", 4000, 3)
    judge.add(judgement, [1, 2])
    judge.add(judgement, [3, 4])
    findings = judgement.findings
    assert findings.findings == [UNDER, CORRUPT, MISSING]
    assert not findings.is_healthy
    assert [(chunk.chunk, chunk.findings, chunk.good, chunk.corrupt) for chunk in findings.unhealthy] == [
        ("0-2", [UNDER], ["dn-1", "dn-3"], []),
        ("0-3", [UNDER, CORRUPT], ["dn-1", "dn-3"], ["dn-2"]),
        ("0-4", [MISSING], [], []),
    ]
    assert judgement.tally == Tally(
        files=1,
        length=4000,
        chunks=4,
        replicas=7,
        corrupt_replicas=1,
        lacking_replicas=5,
        files_with={UNDER: 1, CORRUPT: 1, MISSING: 1},
        chunks_with={UNDER: 2, CORRUPT: 1, MISSING: 1},
    )


def test_a_file_that_was_completed_this_moment_is_open_not_missing(play: Play) -> None:
    play.join("dn-1")
    judge = HealthCheck(play.cluster)
    judgement = judge.file("/f", 1000, 3)
    judge.add(judgement, [99])
    assert judgement.findings.is_open
    assert judgement.findings.findings == []
    assert judgement.tally.worst is None


def test_a_huge_broken_file_lists_some_of_its_chunks_and_counts_all(play: Play) -> None:
    play.join("dn-1")
    count = fsck_chunks_shown_max + 50
    play.cluster.load([record(number) for number in range(1, count + 1)])
    judge = HealthCheck(play.cluster)
    judgement = judge.file("/f", count * 1000, 3)
    judge.add(judgement, range(1, count + 1))
    assert len(judgement.findings.unhealthy) == fsck_chunks_shown_max
    assert judgement.tally.chunks_with == {MISSING: count}


def test_orphans_are_replicas_of_no_file_that_nobody_writes_and_a_mere_token_is_nothing(
    play: Play,
) -> None:
    play.join("dn-1", "dn-2", rack="/1", holding=(Replica(7, 1, 500),))
    play.join("dn-3", rack="/2")
    play.open_for_business()
    play.cluster.place(play.now_s, 8, None, 2, frozenset(), expires_s=60.0)
    play.cluster.place(play.now_s, 9, None, 2, frozenset(), expires_s=60.0)
    play.cluster.heartbeat(play.now_s, "dn-3", Heartbeat(USAGE, added=[Replica(8, 1, 900)]))
    assert judge_cluster(play.cluster) == ClusterFindings(
        datanodes=3, racks=2, chunks_being_written=1, orphaned_replicas=2, orphaned_bytes=1000
    )


def test_tallies_add_up() -> None:
    total = Tally(directories=1, files=2, chunks_with={UNDER: 1})
    total.add(Tally(files=3, length=10, chunks_with={UNDER: 2, MISSING: 1}, files_with={MISSING: 1}))
    assert total == Tally(
        directories=1, files=5, length=10, chunks_with={UNDER: 3, MISSING: 1}, files_with={MISSING: 1}
    )
