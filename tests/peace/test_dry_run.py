"""Dry runs: every chunk once, on distinct servers, step by step; chunks without a place are reported."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_runs import often

from peacefs.peace.dry_run import DryRunRequest, Task, Unplaced, dry_run
from peacefs.peace.policies.ledger import Grant
from peacefs.peace.policies.random import RandomPolicy
from peacefs.peace.simulator.comparison import POLICIES
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.limits import chunk_bytes_max
from peacefs.topology.model import Defaults
from peacefs.topology.rack_table import tree_of_racks
from peacefs.topology.toml_writer import to_structure

_NETWORK = to_structure(tree_of_racks({"a": "/r1", "b": "/r1", "c": "/r2"}, Defaults()))


@st.composite
def _tasks(draw: st.DrawFn) -> Task:
    racks = {f"n{n}": f"/r{draw(st.integers(1, 3))}" for n in range(draw(st.integers(1, 7)))}
    leaving = draw(st.frozensets(st.sampled_from(sorted(racks)), max_size=len(racks) - 1))
    requests = st.builds(
        DryRunRequest,
        writer=st.sampled_from([None, *racks]),
        replication=st.integers(1, len(racks) - len(leaving)),
        chunks=st.integers(1, 5),
    )
    return Task(
        policy=draw(st.sampled_from(sorted(POLICIES))),
        seed=draw(st.integers(0, 3)),
        requests=draw(st.lists(requests, min_size=1, max_size=4)),
        topology=to_structure(tree_of_racks(racks, Defaults())),
        exclude=leaving,
    )


@settings(max_examples=often(60, 150), deadline=None)
@given(_tasks())
def test_every_chunk_is_told_of_once_and_on_as_many_servers_as_asked_for(task: Task) -> None:
    plan = dry_run(task)
    told = sorted((each.request, each.chunk) for each in [*plan.assignments, *plan.unplaced])
    assert told == [(n, chunk) for n, request in enumerate(task.requests) for chunk in range(request.chunks)]
    ends_s = {-1: 0.0}
    for each in plan.assignments:
        assert len(set(each.pipeline)) == len(each.pipeline) == task.requests[each.request].replication
        assert not set(each.pipeline) & task.exclude
        assert each.start_s == ends_s[each.step - 1] < each.end_s
        ends_s[each.step] = max(ends_s.get(each.step, 0.0), each.end_s)


def test_a_chunk_alone_takes_as_long_as_its_slowest_part() -> None:
    (alone,) = dry_run(Task("express", 0, [DryRunRequest("a", 2, 1)], topology=_NETWORK)).assignments
    assert alone.end_s == pytest.approx(chunk_bytes_max / 30e6)


def test_chunk_for_which_the_policy_has_no_room_is_unplaced(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnceOnly(RandomPolicy):
        def _admit(self, now_s: float) -> list[Grant]:
            return [] if now_s else super()._admit(now_s)

    monkeypatch.setitem(POLICIES, "random", lambda topology, rng: OnceOnly(topology, rng, chunks_per_writer=1))
    plan = dry_run(Task("random", 0, [DryRunRequest("a", 2, 3)], topology=_NETWORK))
    assert [each.chunk for each in plan.assignments] == [0]
    assert plan.unplaced == [
        Unplaced(0, chunk, "the policy finds no room for it, even in an idle cluster") for chunk in (1, 2)
    ]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (DryRunRequest("a", 1, 0), "0 chunks are nothing to plan"),
        (DryRunRequest("a", 1, -5), "-5 chunks are nothing to plan"),
        (DryRunRequest("a", 0, 1), "replication 0 is not from 1 to 16"),
        (DryRunRequest("a", 17, 1), "replication 17 is not from 1 to 16"),
        (DryRunRequest("a", 4, 1), "4 replicas need as many servers; there are 3"),
        (DryRunRequest("z", 1, 1), "there is no server 'z'"),
    ],
)
def test_a_request_that_makes_no_sense_is_named(request_: DryRunRequest, said: str) -> None:
    with pytest.raises(BadRequest, match=f"^request 1: {said}"):
        dry_run(Task("express", 0, [DryRunRequest("a", 1, 1), request_], topology=_NETWORK))


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ([], "there are no requests to plan"),
        ([DryRunRequest(None, 1, 1)] * 2001, "2001 requests are over the limit of 2000"),
        ([DryRunRequest(None, 1, 1_000_000)], "1000000 chunks are over the limit of 20000"),
    ],
)
def test_dry_run_bounds_how_much_is_planned_at_once(requests: list[DryRunRequest], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        dry_run(Task("express", 0, requests, topology=_NETWORK))


def test_the_same_task_gives_the_same_plan() -> None:
    task = Task("flow", 5, [DryRunRequest(writer, 2, 4) for writer in ("a", "b", None)], topology=_NETWORK)
    assert dry_run(task) == dry_run(task)
