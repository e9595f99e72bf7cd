"""`peacefs checkpoint repartition`: Spark works on a copy, which takes the checkpoint's place in one step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import Result
from oracles.checkpoint_lives import BEFORE, Lives
from support.checkpoint_ordeal import judge
from support.long_runs import IS_LONG
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import QueryFailed
from peacefs.spark_connector.checkpoints.repartitioning import (
    RepartitionRequest,
    Rewriter,
    repartition_locally,
)
from peacefs.spark_connector.session import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Peacefs = Callable[..., Result]
#: Is killed when Spark would begin with the copy, or when it has planned its batch there.
_KILLED = """
import os, signal, sys
from pathlib import Path
from urllib.parse import urlsplit
from peacefs.spark_connector.checkpoints.repartitioning import RepartitionRequest, repartition_locally

def rewrite(uri, settings):
    if sys.argv[2] == "planned":
        offsets = Path(urlsplit(uri).path) / "offsets"
        (offsets / "8").write_bytes((offsets / "7").read_bytes().replace(b'partitions": "2"', b'partitions": "5"'))
    os.kill(os.getpid(), signal.SIGKILL)

repartition_locally(RepartitionRequest(sys.argv[1], 5, 0), rewrite)
"""


def _refused(peacefs: Peacefs, root: Path, *arguments: str) -> str:
    said = peacefs("repartition", f"file://{root}", *arguments)
    assert (said.exit_code, said.stdout) == (1, ""), said.output
    (line,) = said.stderr.splitlines()
    return line


def _plan(root: Path, batch: int, partitions: int) -> None:
    text = (root / "offsets/7").read_text()
    (root / f"offsets/{batch}").write_text(text.replace('partitions": "2"', f'partitions": "{partitions}"'))


def test_repartition_is_refused_in_one_line_before_spark_is_started(
    local: Path, peacefs: Peacefs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    assert "if the query writes to none, say --no-file-sink" in _refused(peacefs, local, "--partitions=3")
    arguments = ("--partitions=3", "--no-file-sink", "--idle=0")
    assert "needs Spark: install peacefs with the extra" in _refused(peacefs, local, *arguments)
    same = _refused(peacefs, local, "--partitions=2", *arguments[1:])
    assert "the state has 2 partitions already" in same
    _plan(local, 8, 2)
    assert "batch 8 is planned and not done" in _refused(peacefs, local, *arguments)
    _plan(local, 8, 5)
    other = _refused(peacefs, local, *arguments)
    assert "a repartition to 5 partitions is not finished: give --partitions 5, or undo it" in other
    shown = peacefs("show", f"file://{local}").stdout
    assert "batch 8, to 5 partitions; not finished: `repartition` finishes it, `repair` undoes it" in shown
    said = json.loads(peacefs("show", f"file://{local}", "--json").stdout)
    assert said["repartitions"] == [{"batch": 8, "partitions": 5, "done": False}]


@pytest.mark.parametrize("moment", ["begun", "planned"])
def test_repartition_that_is_killed_leaves_the_checkpoint_as_it_was(local: Path, moment: str) -> None:
    before = {path: path.read_bytes() for path in local.rglob("*") if path.is_file()}
    done = subprocess.run([sys.executable, "-c", _KILLED, str(local), moment], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert {path: path.read_bytes() for path in local.rglob("*") if path.is_file()} == before
    # The copy is hidden, and says whose it is.
    (left,) = [path for path in local.parent.iterdir() if path != local]
    assert left.name.startswith(f".{local.name}.repartition-to-5.")
    assert judge(local).restarts


def test_repartition_that_fails_leaves_nothing(local: Path) -> None:
    def rewrite(uri: str, settings: dict[str, str]) -> None:
        raise QueryFailed("Spark cannot")

    with pytest.raises(QueryFailed):
        repartition_locally(RepartitionRequest(str(local), 5, 0), rewrite)
    assert [path.name for path in local.parent.iterdir()] == [local.name]


@pytest.fixture(scope="module")
def stock(spark: SparkSession) -> SparkSession:
    """Return a session without the connector's settings."""
    stock = spark.newSession()
    for setting in settings("127.0.0.1:9870"):
        if setting.key.startswith("spark.sql."):
            stock.conf.unset(setting.key)
    return stock


def _by(spark: SparkSession) -> Rewriter:
    def rewrite(uri: str, settings: dict[str, str]) -> None:
        own = spark.newSession()
        for key, value in settings.items():
            own.conf.set(key, value)
        own._streamingCheckpointManager.repartition(uri, 3)

    return rewrite


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "layout"),
    [("transformWithState", "rocksdb")]
    if not IS_LONG
    else [("aggregation", "records"), ("join", "rocksdb format 2"), ("transformWithState", "rocksdb")],
)
def test_repartition_by_spark_goes_on_exactly_and_a_rollback_undoes_it(
    stock: SparkSession, tmp_path: Path, peacefs: Peacefs, kind: str, layout: str
) -> None:
    lives = Lives(stock, kind, layout, tmp_path / "lives")
    root = lives.copy(lives.ordinary)
    done = repartition_locally(RepartitionRequest(str(root), 3, 0), _by(stock))
    assert (done.batch, done.before) == (BEFORE, BEFORE - 1)
    assert f"batch {BEFORE}, to 3 partitions\n" in peacefs("show", f"file://{root}").stdout
    # The former state goes on too, and so does the new state without it.
    kept = Path(done.kept)
    assert judge(kept).restarts
    kept.rename(tmp_path / "elsewhere")
    verdict = judge(root)
    assert (verdict.restarts, verdict.goes_on_with) == (True, BEFORE + 1), verdict
    back = lives.copy(root)
    start = lives.start(root)
    assert start.refusal is None
    assert lives.holds(start, BEFORE) == lives.expected()
    options = ("--no-file-sink", "--idle=0")
    rolled = peacefs("rollback", f"file://{back}", f"--to-batch={BEFORE - 1}", *options)
    assert rolled.exit_code == 0, rolled.output
    start = lives.start(back)
    assert start.refusal is None
    assert lives.holds(start, BEFORE) == lives.expected()


@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.long("three commands that start a JVM each")
def test_repartition_command_is_killed_in_a_cluster_and_given_again(
    stock: SparkSession, cluster: LocalCluster, tmp_path: Path, peacefs: Peacefs
) -> None:
    lives = Lives(stock, "aggregation", "rocksdb", tmp_path / "lives")
    with PeaceFileSystem(cluster.http_address) as files:
        for path in lives.ordinary.rglob("*"):
            if path.is_file():
                files.write(f"/killed/orders/{path.relative_to(lives.ordinary)}", path.read_bytes())
        where = f"--coordinator={cluster.http_address}"
        options = (where, "--partitions=3", "--no-file-sink", "--idle=0")
        begin = "from peacefs.start import main; main()"
        command = [sys.executable, "-c", begin, "checkpoint", "repartition", "/killed/orders", *options]

        def begun() -> bool:
            hidden = [entry.path for entry in files.list("/killed") if ".repartition-to-3." in entry.path]
            return any(files.exists(f"{path}/offsets/{BEFORE}") for path in hidden)

        process = subprocess.Popen(command, start_new_session=True)
        try:
            wait_until(begun, "Spark plans its batch in the copy")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert not files.exists(f"/killed/orders/offsets/{BEFORE}")
        assert peacefs("verify", "/killed/orders", where).exit_code == 0
        began = time.monotonic()
        subprocess.run(command, check=True, timeout=300)
        print(f"repartitioned in {time.monotonic() - began:.1f} s")
        assert peacefs("verify", "/killed/orders", where).exit_code == 0
        after = json.loads(peacefs("show", "/killed/orders", where, "--json").stdout)
        assert after["repartitions"] == [{"batch": BEFORE, "partitions": 3, "done": True}]
        start = lives.start(f"{cluster.webhdfs_uri}/killed/orders")
        assert start.refusal is None
        assert lives.holds(start, BEFORE) == lives.expected()
