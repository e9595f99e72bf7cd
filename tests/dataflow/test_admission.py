"""A query is refused before it begins, in one line, if its technique cannot give the requested guarantee."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.dataflows import SAMPLES, SCHEMA

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.ring_settings import RingArrangement
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.admission import ALTERNATIVES, admit, suffices
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.techniques.flux import Flux
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.peer_ring import PeerRing
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup
from peacefs.dataflow.window_checkpoints.extent import CostBenefit, Targets
from peacefs.protocol.errors import InvalidQuery, StartupError


def network_of(kind: OperatorClass) -> Network:
    return SAMPLES[kind]().network


def counting() -> Network:
    """Return a function without declarations of which rows its state depends on."""
    query = Query("counting")
    query.source("in", SCHEMA, time="at").process(lambda rows, state: rows, name="counter").sink("out")
    return query.network()


@pytest.mark.parametrize(
    ("kind", "technique", "guarantee", "said"),
    [
        (
            OperatorClass.CONVERGENT_CAPABLE,
            UpstreamBackup(),
            Recovery.PRECISE,
            r"^upstream-backup gives convergent recovery of query 'first', which is convergent-capable by "
            r"'aggregate-1', and precise is asked for: use SGuard\(interval_s=1\), CEC\(\), ActiveStandby\(\), "
            r"Flux\(\), PassiveStandby\(\), UpstreamBackup\(precise=True\), or guarantee=Recovery\.CONVERGENT$",
        ),
        (
            OperatorClass.DETERMINISTIC,
            UpstreamBackup(),
            Recovery.REPEATING,
            r"gives divergent .* by 'aggregate-1', and repeating is asked for: use SGuard\(interval_s=1\), "
            r".*SGuard\(interval_s=1, precise=False\).*DIVERGENT$",
        ),
        (OperatorClass.REPEATABLE, Amnesia(), Recovery.DIVERGENT, r"gap recovery .* use SGuard.*Recovery\.GAP$"),
        (
            OperatorClass.ARBITRARY,
            SGuard(interval_s=1, precise=False),
            Recovery.CONVERGENT,
            r"by 'union-1', and convergent is asked for: use SGuard\(interval_s=1\), ActiveStandby\(\), "
            r"PassiveStandby\(\), UpstreamBackup\(precise=True\), or guarantee=Recovery\.DIVERGENT$",
        ),
    ],
)
def test_guarantee_that_a_technique_cannot_give_is_refused(
    kind: OperatorClass, technique: Technique, guarantee: Recovery, said: str, tmp_path: Path
) -> None:
    network = network_of(kind)
    with pytest.raises(InvalidQuery, match=said) as refused:
        admit(network, technique, guarantee)
    assert "\n" not in str(refused.value)
    host = LocalProcesses(1, DirectoryCheckpoints(tmp_path))
    with pytest.raises(InvalidQuery, match=said):
        host.start(network, technique, {"in": []}, {"out": print}, RunOptions(guarantee=guarantee))


def test_guarantee_that_no_technique_gives_is_refused_without_naming_one() -> None:
    """A standby repeats recorded results, which does not work for a function that reads the clock."""
    query = Query("clock")
    stream = query.source("in", SCHEMA, time="at")
    stream.process(lambda rows, state: rows, remembers="0s", deterministic=False, name="asks").sink("out")
    with pytest.raises(InvalidQuery, match=r"by 'asks', and precise is asked for: no technique gives that here, "):
        admit(query.network(), SGuard(interval_s=1), Recovery.PRECISE)


@pytest.mark.parametrize("kind", OperatorClass, ids=str)
@pytest.mark.parametrize("guarantee", Recovery, ids=lambda each: each.value)
def test_guarantee_that_is_refused_names_techniques_that_are_not(kind: OperatorClass, guarantee: Recovery) -> None:
    network = network_of(kind)
    for technique in (Amnesia(), SGuard(interval_s=1), UpstreamBackup(), PassiveStandby(precise=False)):
        if suffices(technique.promises(kind), guarantee):
            admit(network, technique, guarantee)
            continue
        with pytest.raises(InvalidQuery) as refused:
            admit(network, technique, guarantee)
        for written, make in ALTERNATIVES.items():
            if f"{written}," in str(refused.value):
                admit(network, make(), guarantee)


@pytest.mark.parametrize("precise", [True, False])
def test_function_that_does_not_say_what_its_state_depends_on_is_refused(precise: bool) -> None:
    with pytest.raises(InvalidQuery, match=r"cannot run 'counter'.*remembers='10m'.*or use SGuard"):
        admit(counting(), UpstreamBackup(precise=precise))
    admit(counting(), SGuard(interval_s=1))


def test_precise_upstream_backup_of_windows_whose_input_it_makes_wrong_at_first_is_refused() -> None:
    """A window of rows begins at a row number, so it needs its input unchanged from the first row on."""
    query = Query("behind")
    stream = query.source("in", SCHEMA, time="at").sort("1s", name="sorted").count_window(3)
    stream.aggregate(F.count(), name="counted").sink("out")
    with pytest.raises(InvalidQuery, match=r"with 'counted' behind 'sorted' in unit .* of its own with unit\(\)"):
        admit(query.network(), UpstreamBackup(precise=True))
    query = Query("apart")
    stream = query.source("in", SCHEMA, time="at").sort("1s").unit("windows").count_window(3)
    stream.aggregate(F.count()).sink("out")
    admit(query.network(), UpstreamBackup(precise=True), Recovery.PRECISE)


@pytest.mark.parametrize("technique", [UpstreamBackup(precise=True), PassiveStandby()], ids=lambda each: each.name)
def test_function_that_a_replay_does_not_repeat_is_refused_where_precise_is_said(technique: Technique) -> None:
    query = Query("sampled")
    query.source("in", SCHEMA, time="at").map(lambda rows: rows, deterministic=False, name="samples").sink("out")
    with pytest.raises(InvalidQuery, match=r"cannot be precise for operator 'samples'.* or give precise=False"):
        admit(query.network(), technique)
    # SGuard can run it with a weaker promise.
    admit(query.network(), SGuard(interval_s=1), Recovery.DIVERGENT)
    with pytest.raises(InvalidQuery, match=r"by 'samples', and precise is asked for"):
        admit(query.network(), SGuard(interval_s=1), Recovery.PRECISE)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: UpstreamBackup(interval_s=0),
            r"UpstreamBackup\(interval_s=0\): .* above 0 and at most 60 seconds",
        ),
        (lambda: UpstreamBackup(interval_s=61), "at most 60 seconds"),
        (lambda: UpstreamBackup(interval_s=float("nan")), "above 0"),
        (lambda: SGuard(interval_s=-1), r"SGuard\(interval_s=-1\): it must be above 0"),
        (
            lambda: ActiveStandby(interval_s=float("inf")),
            r"ActiveStandby\(interval_s=inf\): .* at most 60 seconds",
        ),
        (lambda: PassiveStandby(interval_s="1s"), r"PassiveStandby\(interval_s='1s'\): it must be above 0"),  # type: ignore[arg-type]
        (lambda: CEC(commit_s=float("nan")), r"CEC\(commit_s=nan\): it must be above 0"),
        (lambda: Flux(catch_up_after_s=None), r"Flux\(catch_up_after_s=None\): it must be from 0"),  # type: ignore[arg-type]
        (lambda: Flux(standby_nodes=0.5), r"Flux\(standby_nodes=0.5\): .* whole number, 0 or more"),  # type: ignore[arg-type]
        (lambda: PeerRing("2"), r"PeerRing\(r='2'\): r is a number of neighbours, from 0 to"),  # type: ignore[arg-type]
        (lambda: RingArrangement(spares=-1), r"RingArrangement\(spares=-1\): .* whole number, 0 or more"),
        (lambda: PeerRing(silence_s=float("nan")), r"PeerRing\(silence_s=nan\): it must be above 0"),
        (lambda: CEC(Targets(extent=float("nan"))), r"Targets\(extent=nan\): .* 1 or more"),
        (lambda: CEC(Targets(replay_rows="many")), r"Targets\(replay_rows='many'\): .* 1 or more"),  # type: ignore[arg-type]
        (lambda: CEC(CostBenefit(failures_per_day=None)), r"CostBenefit\(failures_per_day=None\): .* above 0"),  # type: ignore[arg-type]
        (lambda: CEC("targets"), r"CEC\('targets'\): a choice of windows is wanted: Targets\(\)"),  # type: ignore[arg-type]
    ],
)
def test_parameter_that_is_impossible_is_refused(make: Callable[[], Technique], said: str) -> None:
    with pytest.raises(InvalidQuery, match=said):
        make()


@pytest.mark.parametrize("technique", [Amnesia(), UpstreamBackup(precise=True)])
def test_resuming_by_a_technique_that_keeps_nothing_is_refused(technique: Technique, tmp_path: Path) -> None:
    host = LocalProcesses(1, DirectoryCheckpoints(tmp_path))
    sources: dict[str, list[pa.RecordBatch]] = {"in": []}
    with pytest.raises(StartupError, match=r"keeps nothing that outlives the program.*takes checkpoints"):
        host.start(
            network_of(OperatorClass.REPEATABLE), technique, sources, {"out": print}, RunOptions(resume=True)
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": 0}, "units want a node, and the host has 0: give it 1 or more"),
        ({"nodes": "3"}, "units want a node, and the host has '3': give it 1 or more"),
        (
            {"checkpoints": "checkpoints"},
            r"as DirectoryCheckpoints\(Path\('checkpoints'\)\), and not 'checkpoints'",
        ),
        ({"node_timeout_s": 0.1}, "nodes say every 0.2 s that they are there: it must be 0.4 or more"),
        ({"node_timeout_s": float("nan")}, "node_timeout_s=nan"),
        ({"bounds": 8192}, r"bounds are given as Bounds\(\.\.\.\), and not as 8192"),
    ],
)
def test_host_that_cannot_run_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    host = LocalProcesses(**{"nodes": 1, "checkpoints": DirectoryCheckpoints(tmp_path), **change})
    with pytest.raises(InvalidQuery, match=said):
        host.start(network_of(OperatorClass.REPEATABLE), Amnesia(), {"in": []}, {"out": print})


@pytest.mark.parametrize(
    "bounds", [{"page_bytes": 1000}, {"credit_bytes": 0}, {"heartbeat_s": None}, {"events_per_turn": 1.5}]
)
def test_bounds_in_which_nothing_fits_are_refused(bounds: dict[str, Any]) -> None:
    (name,) = bounds
    with pytest.raises(InvalidQuery, match=rf"Bounds\({name}=.*\): "):
        Bounds(**bounds)


def test_options_of_another_type_are_refused(tmp_path: Path) -> None:
    host = LocalProcesses(1, DirectoryCheckpoints(tmp_path))
    options: Any = {"resume": True}
    with pytest.raises(InvalidQuery, match=r"options are given as RunOptions\(\.\.\.\)"):
        host.start(network_of(OperatorClass.REPEATABLE), Amnesia(), {"in": []}, {"out": print}, options)


def test_query_in_place_of_its_network_is_refused() -> None:
    query: Any = Query("q")
    with pytest.raises(InvalidQuery, match=r"a network is wanted, as query.network\(\), and not <"):
        admit(query, Amnesia())


@pytest.mark.parametrize(
    ("technique", "guarantee", "said"),
    [
        (SGuard, None, r"a technique is wanted, as SGuard\(interval_s=1\), and not <function"),
        ("sguard", None, "a technique is wanted, .* and not 'sguard'"),
        (Amnesia(), "precise", "guarantee='precise': a kind of recovery is wanted, as Recovery.PRECISE"),
    ],
)
def test_technique_or_guarantee_of_another_type_is_refused(technique: Any, guarantee: Any, said: str) -> None:
    with pytest.raises(InvalidQuery, match=said):
        admit(network_of(OperatorClass.REPEATABLE), technique, guarantee)
