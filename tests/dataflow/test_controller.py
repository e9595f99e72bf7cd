"""The controller notices deaths and chooses who takes over; it ignores messages of earlier starts."""

from __future__ import annotations

from peacefs.dataflow.core.controller import (
    ControllerCore,
    dataflow_checkpoints_kept,
    dataflow_start_wait_s,
)
from peacefs.dataflow.core.effects import (
    DeleteCheckpoint,
    Effect,
    RecordCheckpoint,
    RetainCheckpoints,
    SendMessage,
    StopQuery,
)
from peacefs.dataflow.core.members import dataflow_suspect_s
from peacefs.dataflow.core.messages import (
    CheckpointCost,
    CheckpointRecorded,
    CheckpointStored,
    NodeAlive,
    NodeHeartbeat,
    Placement,
    UnitPlacement,
    UnitRecovered,
    UnitStopped,
)
from peacefs.dataflow.core.unit_places import dataflow_starts_in_vain_max
from peacefs.dataflow.limits import dataflow_busy_s_max, dataflow_tick_s

_TIMEOUT_S = 1.0


def controller(*units: str, nodes: int = 2) -> ControllerCore:
    edge = {"source in": UnitPlacement("edge", 1)}
    return ControllerCore(units, edge, edge_node="edge", nodes_wanted=nodes, node_timeout_s=_TIMEOUT_S)


def beat(node: str, session: str = "1", version: int = 0) -> NodeHeartbeat:
    return NodeHeartbeat(node, session, version, f"{node}:1")


def pass_time(core: ControllerCore, since_s: float, until_s: float) -> list[Effect]:
    """Tick the controller as its host does; return the resulting effects."""
    looks = round((until_s - since_s) / dataflow_tick_s)
    return [effect for look in range(looks + 1) for effect in core.tick(since_s + look * dataflow_tick_s)]


def told(effects: list[Effect]) -> dict[str, Placement]:
    return {
        each.to: each.message
        for each in effects
        if isinstance(each, SendMessage) and isinstance(each.message, Placement)
    }


def test_units_are_placed_evenly_once_all_nodes_are_there() -> None:
    core = controller("a", "b")
    waiting = told(core.heartbeat(0.0, beat("n1")))["n1"]
    assert waiting.units["a"].node is None, "the first node does not get all"
    placed = told(core.heartbeat(0.1, beat("n2")))
    assert set(placed) == {"edge", "n1", "n2"}
    assert {unit: where.node for unit, where in placed["n1"].units.items()} == {
        "a": "n1",
        "b": "n2",
        "source in": "edge",
    }
    assert placed["n1"].addresses == {"n1": "n1:1", "n2": "n2:1"}


def test_units_are_placed_on_those_that_are_there_when_one_never_comes() -> None:
    core = controller("a", "b")
    core.heartbeat(0.0, beat("n1"))
    late_s = dataflow_start_wait_s + 1
    core.heartbeat(late_s, beat("n1"))
    assert {where.node for where in told(core.tick(late_s))["n1"].units.values()} == {"n1", "edge"}


def test_silent_node_loses_its_units_to_another_with_the_last_checkpoint() -> None:
    core = controller("a", "b")
    core.heartbeat(0.0, beat("n1"))
    core.heartbeat(0.0, beat("n2"))
    stored = core.checkpoint_stored("n1", CheckpointStored("a", 1, 7))
    assert stored == [RecordCheckpoint("a", (1, 7), CheckpointCost())]
    assert core.placement.units["a"].checkpoint is None, "nobody begins with it before it is recorded"
    assert core.recorded("a", (1, 7)) == [
        SendMessage("n1", CheckpointRecorded("a", 1, 7)),
        RetainCheckpoints("a", (1, 7)),
    ]
    pass_time(core, 0.0, _TIMEOUT_S / 2)
    core.heartbeat(_TIMEOUT_S / 2, beat("n2"))
    assert pass_time(core, _TIMEOUT_S / 2, _TIMEOUT_S) == []
    placed = told(pass_time(core, _TIMEOUT_S, _TIMEOUT_S + 0.1))
    assert set(placed) == {"edge", "n2"}
    assert placed["n2"].units["a"] == UnitPlacement("n2", 2, (1, 7))
    assert placed["n2"].units["b"] == UnitPlacement("n2", 1), "what goes on is left alone"


def test_silence_is_not_counted_while_the_controller_does_not_listen() -> None:
    """If the controller itself was delayed, it must read waiting messages before it judges silence."""
    core = controller("a", "b")
    core.heartbeat(0.0, beat("n1"))
    core.heartbeat(0.0, beat("n2"))
    core.tick(0.0)
    for pause in range(1, 4):
        assert core.tick(pause * 10 * _TIMEOUT_S) == [], "what came meanwhile was not looked at yet"
        assert core.members == ["n1", "n2"]
        core.heartbeat(pause * 10 * _TIMEOUT_S, beat("n1"))
        core.heartbeat(pause * 10 * _TIMEOUT_S, beat("n2"))
    core.heartbeat(30 * _TIMEOUT_S, beat("n2"))
    pass_time(core, 30 * _TIMEOUT_S, 31.2 * _TIMEOUT_S)
    assert core.members == [], "who says nothing while it listens is dead"


def test_node_that_is_busy_is_alive_while_its_process_says_so() -> None:
    core = controller("a", "b")
    core.heartbeat(0.0, beat("n1"))
    core.heartbeat(0.0, beat("n2"))
    for beats in range(10):
        pass_time(core, beats * _TIMEOUT_S / 2, (beats + 1) * _TIMEOUT_S / 2)
        core.received(0.0, "n1", NodeAlive("n1", "1"))
        core.received(0.0, "n2", NodeAlive("n2", "another"))
        core.received(0.0, "n3", NodeAlive("n3", "1"))
    assert core.members == ["n1"], "a session that is over, and a node that has not begun, count for nothing"


def test_node_that_is_at_work_is_alive_for_a_while() -> None:
    """The node's machine is so busy that it sends nothing. That is excused for a limited time."""
    core = controller("a", nodes=1)
    core.heartbeat(0.0, beat("n1"))
    now_s = 0.0
    while now_s < dataflow_busy_s_max:
        assert core.members == ["n1"]
        core.at_work(["n1", "n2"])
        now_s += _TIMEOUT_S / 2
        pass_time(core, now_s - _TIMEOUT_S / 2, now_s)
    for _ in range(4):
        core.at_work(["n1"])
        now_s += _TIMEOUT_S / 2
        pass_time(core, now_s - _TIMEOUT_S / 2, now_s)
    assert core.members == []


def test_node_whose_connection_broke_is_dead_sooner() -> None:
    core = controller("a", nodes=1)
    core.heartbeat(0.0, beat("n1"))
    core.tick(0.0)
    core.disconnected("n1")
    pass_time(core, 0.0, dataflow_suspect_s - 0.05)
    assert core.members == ["n1"]
    pass_time(core, dataflow_suspect_s - 0.05, dataflow_suspect_s + 0.1)
    assert core.members == []


def test_query_stops_when_a_unit_never_catches_up() -> None:
    """A row that crashes the process that handles it would do so for ever."""
    core = controller("a", nodes=1)
    starts = dataflow_starts_in_vain_max
    for start in range(1, 2 * starts + 1):
        core.heartbeat(start, beat("n1", session=str(start)))
        if start == starts:
            core.unit_recovered(UnitRecovered("a", start, 0, 0))
            core.unit_recovered(UnitRecovered("a", start - 1, 0, 0))
        assert core.node_lost("n1") != []
    (stopped,) = core.heartbeat(100.0, beat("n1"))
    assert isinstance(stopped, StopQuery)
    assert stopped.reason.startswith(f"unit 'a' has begun {starts} times in a row")


def test_checkpoint_of_an_earlier_start_is_refused_and_deleted() -> None:
    core = controller("a")
    core.heartbeat(0.0, beat("n1"))
    core.heartbeat(0.0, beat("n2"))
    core.node_lost("n1")
    late = core.checkpoint_stored("n1", CheckpointStored("a", 1, 3))
    assert late == [DeleteCheckpoint("a", (1, 3))]
    assert core.placement.units["a"] == UnitPlacement("n2", 2)


def test_older_checkpoint_goes_when_a_later_one_is_recorded() -> None:
    core = controller("a", nodes=1)
    core.heartbeat(0.0, beat("n1"))
    for number in range(1, dataflow_checkpoints_kept + 2):
        effects = core.recorded("a", (1, number))
        oldest = max(number - dataflow_checkpoints_kept + 1, 1)
        assert effects == [
            SendMessage("n1", CheckpointRecorded("a", 1, number)),
            RetainCheckpoints("a", (1, oldest)),
        ]


def test_checkpoint_that_is_recorded_too_late_lets_nothing_go() -> None:
    """The node was lost meanwhile, and the unit restarted elsewhere from the previous checkpoint."""
    core = controller("a")
    core.heartbeat(0.0, beat("n1"))
    core.heartbeat(0.0, beat("n2"))
    core.checkpoint_stored("n1", CheckpointStored("a", 1, 1))
    core.node_lost("n1")
    assert core.recorded("a", (1, 1)) == []
    assert core.placement.units["a"] == UnitPlacement("n2", 2)


def test_resumed_query_begins_with_what_was_recorded() -> None:
    """All units start with incarnations that no start under the earlier controller can have had."""
    edge = {"source in": UnitPlacement("edge", 1)}
    core = ControllerCore(["a", "b"], edge, edge_node="edge", resumed={"a": (3, 7)}, starts_before=1000)
    units = told(core.heartbeat(0.0, beat("n1")))["n1"].units
    assert units["a"] == UnitPlacement("n1", 1001, (3, 7))
    assert units["b"] == UnitPlacement("n1", 1001)


def test_node_that_began_again_has_lost_what_it_ran() -> None:
    """The process was replaced before anybody noticed its silence."""
    core = controller("a", nodes=1)
    core.heartbeat(0.0, beat("n1", "first"))
    placed = told(core.heartbeat(0.2, beat("n1", "second")))
    assert placed["n1"].units["a"] == UnitPlacement("n1", 2)


def test_unit_waits_while_no_node_is_there() -> None:
    core = controller("a", nodes=1)
    core.heartbeat(0.0, beat("n1"))
    assert told(core.node_lost("n1"))["edge"].units["a"].node is None
    assert told(core.heartbeat(5.0, beat("n2")))["n2"].units["a"] == UnitPlacement("n2", 2)


def test_unit_is_recovered_where_most_of_its_checkpoint_is() -> None:
    core = controller("a", "b", "c", nodes=3)
    for node in ("n1", "n2", "n3"):
        core.heartbeat(0.0, beat(node))
    core.replicas_at("a", {"n3": 100, "n2": 10})
    core.node_lost("n1")
    assert core.placement.units["a"].node == "n3"


def test_node_that_missed_a_placement_is_told_again() -> None:
    core = controller("a", nodes=1)
    version = told(core.heartbeat(0.0, beat("n1")))["n1"].version
    assert told(core.heartbeat(0.2, beat("n1", version=version))) == {}
    assert told(core.heartbeat(0.4, beat("n1", version=version - 1)))["n1"].version == version


def test_query_stops_with_a_unit_of_the_valid_start_alone() -> None:
    core = controller("a", nodes=1)
    core.heartbeat(0.0, beat("n1"))
    assert core.unit_stopped(UnitStopped("a", 0, "old")) == []
    assert core.unit_stopped(UnitStopped("a", 1, "operator 'x' failed")) == [StopQuery("operator 'x' failed")]
