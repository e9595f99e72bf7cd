"""The comparison of all techniques: its judge, its clock, its page, and a short run."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.dataflows.seeded import SeededRun
from benchmarks.recovery import PAGE
from benchmarks.side_by_side import pictures, tables
from benchmarks.side_by_side.contest import Nodes, Played, Processes, Schedule, play
from benchmarks.side_by_side.queries import (
    QUERIES,
    SINK,
    SOURCE,
    FailedLogins,
    Row,
    SideQuery,
    WordCounts,
    made_at,
)
from benchmarks.side_by_side.tables import Cell
from benchmarks.side_by_side.timeline import Timeline, arrivals
from benchmarks.side_by_side.usage import Usage, own_network
from benchmarks.side_by_side.verdict import Verdict, judge_by_key
from peacefs.dataflow.advice.advice import Demand, advise
from peacefs.dataflow.advice.load import QueryLoad
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.model.operator_class import Recovery
from peacefs.dataflow.techniques.admission import suffices
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.sguard import SGuard

_WORDS = WordCounts()
_RIGHT: list[Row] = [("a", 0, 1), ("a", 2, 2), ("b", 1, 1), ("b", 3, 2)]


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_batch_over_all_rows_gives_what_the_dataflow_gives(query: SideQuery) -> None:
    given = [made_at(number) for number in range(30)]
    outcome = SeededRun(query.network(), Amnesia(), {SOURCE: given}, seed=1).run(until_s=1e6)
    rows = [row for batch in outcome.sinks[SINK] for row in query.rows_of(batch)]
    expected = query.expected(given)
    assert len(expected) > 100
    assert judge_by_key(query, expected, rows) == Verdict(0, 0, 0, Recovery.PRECISE)


@pytest.mark.parametrize(
    ("observed", "verdict"),
    [
        ([("b", 1, 1), ("a", 0, 1), ("b", 3, 2), ("a", 2, 2)], Verdict(0, 0, 0, Recovery.PRECISE)),
        ([*_RIGHT, ("b", 3, 2)], Verdict(0, 1, 0, Recovery.REPEATING)),
        ([("a", 0, 1), ("b", 1, 1), ("b", 3, 2)], Verdict(1, 0, 0, Recovery.GAP)),
        ([("a", 0, 1), ("a", 2, 1), ("b", 1, 1), ("b", 3, 2)], Verdict(0, 0, 1, Recovery.DIVERGENT)),
    ],
    ids=["another order of keys", "a row again", "a row lost", "a state lost"],
)
def test_verdict_counts_rows_that_are_lost_repeated_and_wrong(observed: list[Row], verdict: Verdict) -> None:
    assert judge_by_key(_WORDS, _RIGHT, observed) == verdict


def test_verdict_on_latest_counts_misses_only_the_last_of_a_key() -> None:
    """A micro-batch outputs one count per word, after all rows of the batch."""
    assert judge_by_key(_WORDS, _RIGHT, [("a", 2, 2), ("b", 3, 2)], latest=True).kind is Recovery.PRECISE
    assert judge_by_key(_WORDS, _RIGHT, [("a", 2, 2), ("b", 1, 1)], latest=True) == Verdict(1, 0, 0, Recovery.GAP)


def _timeline(late_s: dict[int, float], *, killed_at: int = 300) -> Timeline:
    """Return rows every 10 ms over six seconds; each arrives after 5 ms, unless `late_s` says otherwise."""
    offered = np.arange(600) / 100
    took = np.full(600, 0.005)
    for number, seconds in late_s.items():
        took[number] = seconds
    return Timeline(offered, offered + took, 0.5, [killed_at / 100], 6.0)


def test_recovery_is_over_when_rows_come_and_none_is_late() -> None:
    # Rows from 3.00 s on wait until 3.50 s.
    line = _timeline({number: 3.5 - number / 100 for number in range(300, 345)})
    assert line.recoveries_s() == [pytest.approx(0.5)]
    assert line.before.worst_ms == pytest.approx(5.0)
    assert line.during.worst_ms == pytest.approx(500.0)
    assert line.after.worst_ms == pytest.approx(5.0)


def test_recovery_of_one_that_loses_rows_ends_with_the_rows_that_come() -> None:
    line = _timeline(dict.fromkeys(range(300, 330), float("inf")))
    assert line.recoveries_s() == [pytest.approx(0.305)]


def test_recovery_is_not_prolonged_by_a_row_that_is_late_much_later() -> None:
    assert _timeline({500: 0.4}).recoveries_s() == [pytest.approx(0.005)]


def test_recovery_that_never_ends_is_infinite() -> None:
    assert _timeline(dict.fromkeys(range(300, 600), float("inf"))).recoveries_s() == [float("inf")]


def test_arrival_of_a_count_is_that_of_a_later_count_of_its_word() -> None:
    came: dict[Hashable, float] = {("a", 2): 5.0, ("b", 1): 3.0}
    offered, arrived = arrivals(_WORDS, _RIGHT, came, [1.0], latest=True)
    assert list(offered) == [1.0] * 4
    assert list(arrived) == [5.0, 5.0, 3.0, float("inf")]


def test_tables_are_put_into_a_page_and_read_back(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Before\n\n<!-- measured -->\nold\n<!-- end of what was measured -->\n\nAfter.\n")
    played = Played(_timeline({}), Verdict(1, 2, 3, Recovery.GAP), Usage(61.2, 400.0, 3 << 20), [0.02])
    cells = {Cell("word counts", "Amnesia", "processes"): played}
    absent = {Cell("word counts", name, "processes"): "refused: it has no windows" for name in ("CEC", "Other")}
    tables.publish(page, tables.page_text(cells, absent, {}, "two cores"))
    text = page.read_text()
    assert text.startswith("# Before") and text.endswith("After.\n") and "old" not in text
    assert "- CEC and Other on processes: refused: it has no windows" in text
    ((row,),) = tables.published(page)["Word counts"]
    assert (row["technique"], row["µs a row"], row["lost"], row["recovery"]) == ("Amnesia", "61.20", "1", "gap")
    assert row["p50, ms"] == "5.00"


def test_pictures_are_drawn_of_one_that_has_not_recovered(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `picture` is not installed")
    cell = Cell("word counts", "Amnesia", "spark")
    line = _timeline(dict.fromkeys(range(300, 600), float("inf")))
    found = {cell: Played(line, Verdict(300, 0, 0, Recovery.GAP), Usage(61.2, 400.0, 3 << 20))}
    for name, figure in (
        ("latency", pictures.latency_figure("word counts", found)),
        ("costs", pictures.cost_figure(found)),
    ):
        figure.savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 0


def test_network_of_a_benchmark_is_left_as_it_was() -> None:
    before = Path("/proc/thread-self/ns/net").readlink()
    with own_network() as alone:
        assert (Path("/proc/thread-self/ns/net").readlink() != before) is alone
    assert Path("/proc/thread-self/ns/net").readlink() == before


def test_contest_kills_the_node_with_the_state_and_judges_what_comes(tmp_path: Path) -> None:
    contestant = Nodes(Processes(DirectoryCheckpoints(tmp_path)), SGuard(interval_s=0.2))
    played = play(FailedLogins(), contestant, Schedule(warm_s=0.2, before_s=0.6, kills=1, gap_s=1.0))
    assert played.verdict == Verdict(0, 0, 0, Recovery.PRECISE)
    assert len(played.noticed_s) == 1
    assert played.usage.processor_us > 0 and played.usage.memory_bytes > 0


# -- advice compared with the page ---------------------------------------------------------------------------


def _published(query: SideQuery) -> tuple[dict[str, dict[str, str]], QueryLoad]:
    """Return the page's results of each technique on processes, and the query's load."""
    measured = tables.published(PAGE)
    costs = measured[tables.heading_of(query.name)][0]
    (load,) = (row for row in measured[tables.LOADS][0] if row.pop("query") == query.name)
    values = {name: float(value) if value else None for name, value in load.items()}
    return {row["technique"]: row for row in costs if row["on"] == "processes"}, QueryLoad(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_advice_promises_what_the_comparison_has_found(query: SideQuery) -> None:
    """Each technique that the advice admits has run, and has recovered at least as well as promised."""
    found, load = _published(query)
    options = {each.technique: each for each in advise(query.network(), load, Demand(Recovery.GAP))}
    assert found.keys() == {name for name, each in options.items() if not each.refused}
    for name, row in found.items():
        promised = options[name].promises
        assert promised is not None and suffices(Recovery(row["recovery"]), promised), name
        if promised is Recovery.PRECISE:
            assert (row["lost"], row["repeated"], row["wrong"]) == ("0", "0", "0"), name


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_advice_orders_costs_as_the_comparison_does(query: SideQuery) -> None:
    """Compare only estimates that differ by more than half of the query's own work."""
    found, load = _published(query)
    options = {each.technique: each for each in advise(query.network(), load, Demand(Recovery.GAP))}
    costs = {name: options[name].estimate for name in found}
    for cheap, dear in itertools.permutations(found, 2):
        less, more = costs[cheap], costs[dear]
        assert less is not None and more is not None
        if more.processor > less.processor + 0.5:
            assert float(found[dear]["µs a row"]) > 0.8 * float(found[cheap]["µs a row"]), (cheap, dear)
        if less.links + less.files < 0.5 and more.links + more.files > 4:
            assert float(found[dear]["bytes a row"]) > float(found[cheap]["bytes a row"]), (cheap, dear)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_advice_for_a_precise_query_is_one_of_the_cheapest_that_the_comparison_has_found(query: SideQuery) -> None:
    found, load = _published(query)
    advised = advise(query.network(), load)[0].technique
    precise = sorted(float(row["µs a row"]) for row in found.values() if row["recovery"] == "precise")
    assert found[advised]["recovery"] == "precise"
    assert float(found[advised]["µs a row"]) <= precise[len(precise) // 2]


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_advice_that_wants_a_quick_recovery_is_quick_in_the_comparison(query: SideQuery) -> None:
    found, load = _published(query)
    least = min(each.recovery_s or 0.0 for each in advise(query.network(), load) if not each.refused)
    advised = advise(query.network(), load, Demand(recovery_s_max=1.05 * least))[0].technique
    precise = sorted(float(row["recovered, ms"]) for row in found.values() if row["recovery"] == "precise")
    assert float(found[advised]["recovered, ms"]) <= precise[len(precise) // 2]
