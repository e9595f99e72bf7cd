"""Advice on a technique: compared with the results of the benchmarks, and refused with reasons."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from peacefs.command import application
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.advice.advice import Demand, Option, advise
from peacefs.dataflow.advice.estimates import estimate
from peacefs.dataflow.advice.load import Machines, Parameters, QueryLoad
from peacefs.dataflow.advice.measure import measure, remembered_s
from peacefs.dataflow.model.operator_class import Recovery
from peacefs.dataflow.query.network import Network

#: The query of `benchmarks recovery_costs` at 10,000 rows/s: windows of 100 ms every 10 ms, checkpoints every 50
#: ms.
_MEASURED_LOAD = QueryLoad(
    rate=10_000,
    processing_s=60e-6,
    row_bytes=25,
    selectivity=1.0,
    state_bytes=200_000,
    copied_bytes_s=4_400_000,
    changed_bytes_s=200_000,
    remembered_s=0.1,
    windows_per_row=1.0,
    open_windows=1_000,
    units=3,
)
#: Results of that command on a quiet machine: processor and link bytes relative to amnesia, and recovery in s.
_MEASURED = {
    "UpstreamBackup": (1.05, 1.02, 0.050),
    "ActiveStandby": (1.64, 1.88, 0.010),
    "PassiveStandby": (1.04, 6.57, 0.042),
    "SGuard": (1.36, 1.01, 0.051),
    "CEC": (1.66, 1.01, 0.293),
}


def logins(window: str = "1s") -> Network:
    query = Query("logins")
    events = query.source("events", {"address": "string", "at": "timestamp", "ok": "bool"}, time="at")
    windows = events.filter(~F.col("ok")).unit("windows").key_by("address").window(window, every="500ms")
    return windows.aggregate(F.count()).sink("attacks").network()


def sample(rows: int, rate: int) -> pa.Table:
    chance = np.random.default_rng(7)
    return pa.table(
        {
            "address": [f"10.0.0.{number}" for number in chance.integers(0, 200, rows)],
            "at": pa.array(np.arange(rows) * 1_000_000 // rate, pa.timestamp("us", tz="UTC")),
            "ok": pa.array(chance.random(rows) < 0.5),
        }
    )


def by_technique(options: Mapping[str, Option] | list[Option]) -> dict[str, Option]:
    return {each.technique: each for each in options}  # type: ignore[union-attr]


def test_estimates_order_the_techniques_as_the_benchmark_does() -> None:
    """Compare the order only where the benchmark distinguishes techniques, and recovery times by their ranges."""
    parameters = Parameters(interval_s=0.05, checkpoint_s=0.05)
    found = {name: estimate(name, _MEASURED_LOAD, Machines(), parameters) for name in _MEASURED}
    assert max(found, key=lambda name: found[name].links) == "PassiveStandby"
    assert found["ActiveStandby"].links == pytest.approx(1.0, abs=0.1)
    assert all(found[name].links < 0.05 for name in ("UpstreamBackup", "SGuard", "CEC"))
    assert found["ActiveStandby"].processor > max(
        found[name].processor for name in ("UpstreamBackup", "PassiveStandby", "SGuard", "CEC")
    )
    assert min(found, key=lambda name: found[name].recovery_s) == "ActiveStandby"
    for name, (_, _, recovery_s) in _MEASURED.items():
        assert 1 / 4 < found[name].recovery_s / recovery_s < 4, name


def test_advice_for_a_query_that_must_be_precise_is_the_cheapest_that_is() -> None:
    options = advise(logins(), _MEASURED_LOAD)
    assert options[0].technique == "SGuard"
    refused = by_technique([each for each in options if each.refused])
    assert refused["Amnesia"].refused == "gives gap recovery, precise is wanted"
    assert refused["UpstreamBackup"].promises is Recovery.CONVERGENT


def test_advice_changes_with_what_the_owner_can_bear() -> None:
    load = _MEASURED_LOAD
    assert advise(logins(), load, Demand(Recovery.GAP))[0].technique == "Amnesia"
    quick = advise(logins(), load, Demand(recovery_s_max=0.045))[0]
    assert quick.technique == "ActiveStandby"
    # For a small state, little changes between copies; but the input since the last checkpoint is replayed.
    still = QueryLoad(**{**vars(load), "copied_bytes_s": 10_000.0})
    assert advise(logins(), still, Demand(recovery_s_max=0.2))[0].technique == "PassiveStandby"


def test_advice_names_what_no_technique_keeps() -> None:
    options = advise(logins(), _MEASURED_LOAD, Demand(recovery_s_max=0.001))
    assert all(each.refused for each in options)
    assert "recovers in" in by_technique(list(options))["ActiveStandby"].refused


def test_advice_counts_what_a_commit_costs_however_small_it_is() -> None:
    """At a low row rate, a log that is committed 20 times a second costs more than a second node."""
    few = QueryLoad(**{**vars(_MEASURED_LOAD), "rate": 1_000.0})
    found = {name: estimate(name, few, Machines(), Parameters()) for name in _MEASURED}
    assert found["CEC"].processor > found["ActiveStandby"].processor > found["SGuard"].processor


def test_load_of_a_query_is_measured_on_a_sample_of_its_rows() -> None:
    load = measure(logins(), {"events": sample(8_000, 4_000)}, 4_000)
    assert load.rate == 4_000 and load.remembered_s == 1.0
    assert load.processing_s > 0 and 10 < load.row_bytes < 60
    # 100 failed logins from 200 addresses in half a second; each failure is in two windows.
    assert 0.1 < load.selectivity < 1.0
    assert load.state_bytes > 0
    assert load.copied_bytes_s >= load.changed_bytes_s > 0


def test_memory_of_a_query_is_that_of_its_longest_operator_or_unknown() -> None:
    assert remembered_s(logins("30s")) == 30.0
    query = Query("counts")
    rows = query.source("rows", {"key": "string", "at": "timestamp"}, time="at")
    network = rows.key_by("key").count_window(10).aggregate(F.count()).sink("out").network()
    assert remembered_s(network) is None


def test_command_advises_on_a_file_with_a_query_and_a_sample(tmp_path: Path) -> None:
    (tmp_path / "logins.py").write_text(
        "from peacefs.dataflow import Query, functions as F\n"
        "logins = Query('logins')\n"
        "events = logins.source('events', {'address': 'string', 'at': 'timestamp', 'ok': 'bool'}, time='at')\n"
        "windows = events.filter(~F.col('ok')).unit('windows').key_by('address').window('1s', every='500ms')\n"
        "windows.aggregate(F.count()).sink('attacks')\n"
    )
    parquet.write_table(sample(4_000, 4_000), tmp_path / "events.parquet")
    words = ["dataflow", "advise", f"{tmp_path}/logins.py", "--rate", "4000"]
    words += ["--sample", f"{tmp_path}/events.parquet"]
    done = CliRunner().invoke(application, [*words, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["advice"] and told["load"]["rate"] == 4000
    assert {each["technique"] for each in told["techniques"]} >= {"SGuard", "CEC", "ActiveStandby"}
    hurried = CliRunner().invoke(application, [word if word != "4000" else "1e9" for word in words])
    assert "at 1e+09 rows a second the query itself takes" in hurried.stdout
    nothing = CliRunner().invoke(application, [*words, "--recover-within", "0.0001"])
    assert nothing.exit_code == 1 and "no technique keeps what is wanted" in nothing.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["none.py"], "there is no file none.py"),
        (["{}/two.py"], "has 2 queries (one, two): say {}/two.py:NAME"),
        (["{}/two.py:three"], "has no query 'three'; it has one, two"),
        (["{}/two.py:one", "--sample", "rows=x.txt"], "the sample x.txt is none of .parquet, .csv, .json"),
        (["{}/two.py:one", "--sample", "x=y.csv"], "the query's sources are rows; say SOURCE=FILE"),
        (["{}/two.py:one", "--sample", "{}/none.csv"], "there is no sample {}/none.csv"),
        (["{}/two.py:one", "--sample", "{}/timeless.csv"], "timeless.csv has rows without a time, 'at'"),
        (["{}/bad.py"], "bad.py cannot be run: KeyError: 'HOST' (bad.py, line 2)"),
        (["{}/two.py:one", "--rate", "inf"], "--rate inf: it must be a number above 0"),
        (["{}/two.py:one", "--checkpoint", "0"], "--checkpoint 0: it must be a number above 0"),
        (["{}/two.py:one", "--recover-within", "-1"], "--recover-within must be a number, 0 or more"),
    ],
)
def test_command_says_in_a_line_what_is_wrong(tmp_path: Path, words: list[str], complaint: str) -> None:
    lines = ["from peacefs.dataflow import Query"]
    for name in ("one", "two"):
        lines.append(f"{name} = Query('{name}')")
        lines.append(f"{name}.source('rows', {{'key': 'string', 'at': 'timestamp'}}, time='at').sink('out')")
    (tmp_path / "two.py").write_text("\n".join(lines))
    (tmp_path / "bad.py").write_text("import os\nhost = {}['HOST']\n")
    (tmp_path / "timeless.csv").write_text("key,at\na,2026-01-01T00:00:00\nb,\n")
    given = [word.replace("{}", str(tmp_path)) for word in words]
    if "--sample" not in given:
        given += ["--sample", "rows=rows.csv"]
    if "--rate" not in given:
        given += ["--rate", "10"]
    done = CliRunner().invoke(application, ["dataflow", "advise", *given])
    assert done.exit_code == 1
    assert complaint.replace("{}", str(tmp_path)) in done.output
