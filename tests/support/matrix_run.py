"""Run the cells of the checkpoint matrix: real drivers on a cluster, killed in mid-state, then each event.

For each Spark: all queries start together and are killed together, several times, at moments that a seed chooses.
Each event is then made on a fork by the command, and Spark goes on from it to the end of the input. `verify` is
asked before each start and after the end; what the sink then has is compared with DuckDB's answer.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracles import checkpoint_matrix as matrix
from oracles import matrix_queries
from oracles.checkpoint_matrix import ALWAYS, EVENTS, KINDS, LAYOUTS, Cell, Input, Version
from typer.testing import CliRunner

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.commands.checkpoint_commands import checkpoint
from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.layout import StoreFiles
from peacefs.spark_connector.checkpoints.tree import PeaceTree
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.session import as_dict, settings

_PORTRAITS = Path(__file__).parent / "matrix_portraits.java"
_PARTITIONS = 3
_EXACT = "exact"

#: The outcome of an event in a cell: "exact", or what went wrong.
Outcomes = dict[tuple[Cell, str], str]


def _version(spark: str) -> Version:
    major, minor, *_ = spark.split(".")
    return int(major), int(minor)


class MatrixSpark:
    """A Spark of some Python in its own process group, which can be killed and started again."""

    def __init__(self, python: str, address: str, directory: Path, *, jvm: bool = True) -> None:
        directory.mkdir(parents=True)
        self._python, self._directory = python, directory
        asked = "import importlib.metadata as m, pyspark; print(m.version('pyspark'), pyspark.__path__[0])"
        said = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
        self.name, home = said
        self.version = _version(self.name)
        java = find_java()
        self._environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
            **java_environment(java, directory / "java"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": python,
        }
        told = as_dict(settings(address, spark_version=self.name)) | {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "3g",
            # All queries start together, on a machine that may be busy.
            "spark.python.authenticate.socketTimeout": "120s",
            "spark.local.dir": str(directory / "scratch"),
        }
        if jvm and self.version >= KINDS["transformWithState, JVM"].since:
            told["spark.jars"] = str(self._compile(Path(home) / "jars"))
        (directory / "settings.json").write_text(json.dumps(told))
        self._process: subprocess.Popen[str] | None = None

    def _compile(self, jars: Path) -> Path:
        source, classes = self._directory / "Portraits.java", self._directory / "classes"
        shutil.copy(_PORTRAITS, source)
        subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", f"{jars}/*", str(source)], check=True)
        jar = shutil.make_archive(str(self._directory / "portraits"), "zip", classes)
        return Path(jar).rename(self._directory / "portraits.jar")

    def ask(self, **what: Any) -> Iterator[dict[str, Any]]:
        """Yield each line of the answer, the last one with `done`. Start the process if it does not run."""
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        yield from self._answer()

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None

    def _start(self) -> None:
        with (self._directory / "errors").open("ab") as errors:
            self._process = subprocess.Popen(
                [self._python, "-P", matrix_queries.__file__, str(self._directory / "settings.json")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self._environment,
                cwd=self._directory,
                start_new_session=True,
            )
        list(self._answer())

    def _answer(self) -> Iterator[dict[str, Any]]:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            said: dict[str, Any] = json.loads(line)
            yield said
            if "done" in said:
                return
        raise AssertionError((self._directory / "errors").read_text()[-3000:])


@dataclass
class Life:
    """A checkpoint after an event, and its sink."""

    cell: Cell
    event: str
    root: str
    output: Path
    source: Input
    outcome: str = _EXACT

    def fail(self, why: str) -> None:
        if self.outcome == _EXACT:
            self.outcome = " ".join(why.split())[:400]


@dataclass
class Report:
    """What one Spark did."""

    spark: str
    outcomes: Outcomes = field(default_factory=dict)
    #: Where queries were when they were killed.
    moments: Counter[str] = field(default_factory=Counter)
    #: Lives at their last kill, for a newer Spark.
    killed: list[Life] = field(default_factory=list)

    @property
    def version(self) -> Version:
        return _version(self.spark)


class MatrixRun:
    """Runs one Spark after another on one cluster. `say` reports progress."""

    def __init__(
        self, cluster: LocalCluster, directory: Path, rng: random.Random, say: Callable[[str], None] = print
    ) -> None:
        self._cluster, self._directory, self._rng, self._say = cluster, directory, rng, say
        self._files = cluster.webhdfs_uri
        self._runs = 0

    def run(
        self, spark: MatrixSpark, cells: list[Cell], events: list[str], kills: int, older: Report | None = None
    ) -> Report:
        report = Report(spark.name)
        self._runs += 1
        place = self._directory / f"{self._runs}-{spark.name}"
        place.mkdir(parents=True)
        source = Input(place / "in")
        lives = [
            Life(cell, "killed", f"/matrix/{spark.name}/{cell.name}", place / cell.name / "killed", source)
            for cell in cells
        ]
        try:
            for kill in range(kills):
                # A rollback and a pruning need two batches that are done, and a third in which to be killed.
                source.put(2 if kill else 4)
                self._run_and_kill(spark, lives, least=0 if kill else 2)
                for life in lives:
                    report.outcomes[life.cell, life.event] = life.outcome
                lives = [life for life in lives if life.outcome == _EXACT]
                report.moments.update(self._moment(life.root) for life in lives)
            self._say(f"{spark.name}: {len(lives)} queries killed {kills} times: {dict(report.moments)}")
            events = [event for event in events if EVENTS[event].since <= spark.version]
            every = list(lives)
            for life in lives:
                every += self._forks(life, events)
            if older is not None and "upgraded" in events:
                every += [self._copy(life, "upgraded", spark.name) for life in older.killed]
            # Kept for the next Spark before this one goes on from it.
            report.killed = [self._copy(life, "kept", spark.name) for life in lives]
            source.put(1)
            if "repartitioned" in events:
                self._go_on(spark, lives)
                for life in lives:
                    every += self._repartitions(spark, life, events)
            source.put(1)
            source.close()
            self._go_on(spark, every)
            for life in every:
                if life.outcome == _EXACT:
                    self._compare(life)
                report.outcomes[life.cell, life.event] = life.outcome
        finally:
            spark.kill()
        return report

    # -- Spark ---------------------------------------------------------------------------------------

    def _job(self, life: Life) -> dict[str, Any]:
        conf = ALWAYS | LAYOUTS[life.cell.layout].conf
        return {
            "name": life.root,
            "kind": life.cell.kind,
            "conf": conf,
            "source": str(life.source.directory),
            "root": self._files + life.root,
            "output": str(life.output),
        }

    def _run_and_kill(self, spark: MatrixSpark, lives: list[Life], least: int) -> None:
        """Kill the queries at a random moment after each has begun batch `least`, or another since this start."""
        jobs = [self._job(life) for life in lives]
        self._rng.shuffle(jobs)
        # Each query has two files to read, and a batch without rows after them.
        after = self._rng.randint(len(jobs) // 2 + 1, max(2 * len(jobs) - 1, len(jobs) // 2 + 1))
        seen, begun = 0, set[str]()
        named = {life.root: life for life in lives}
        for said in spark.ask(run=jobs):
            if said.get("failure"):
                named[said["ended"]].fail(f"Spark: {said['failure']}")
                begun.add(said["ended"])
            if "sink" in said:
                seen += 1
                if said["batch"] >= least:
                    begun.add(said["sink"])
            if seen >= after and len(begun) == len(jobs):
                break
        spark.kill()

    def _go_on(self, spark: MatrixSpark, lives: list[Life]) -> None:
        lives = [life for life in lives if life.outcome == _EXACT]
        verdicts = {}
        for life in lives:
            status, verdict = self._verify(life.root)
            verdicts[life.root] = verdict
            if not verdict["restarts"]:
                life.fail(f"verify, before Spark goes on: {verdict['findings']}")
            elif status not in (0, 3):
                life.fail(f"verify ends with {status}")
        named = {life.root: life for life in lives}
        # A fork has the id of its original, and an application runs only one query of an id at a time.
        for event in dict.fromkeys(life.event for life in lives):
            together = [self._job(life) for life in lives if life.event == event]
            for said in spark.ask(run=together):
                if "ended" in said:
                    life, verdict = named[said["ended"]], verdicts[said["ended"]]
                    if said["failure"]:
                        life.fail(f"Spark: {said['failure']}")
                    elif said["first"] != verdict["goes_on_with"]:
                        life.fail(f"Spark begins with {said['first']}, verify said {verdict['goes_on_with']}")
            self._say(f"{spark.name}: {len(together)} queries went on: {event}")

    def _compare(self, life: Life) -> None:
        has, wanted = matrix.sink_rows(life.output, life.cell.kind), life.source.answer(life.cell.kind)
        if has != wanted:
            lost = list((Counter(wanted) - Counter(has)).elements())[:3]
            more = list((Counter(has) - Counter(wanted)).elements())[:3]
            life.fail(f"{len(has)} rows, not {len(wanted)}: lacks {lost}, has {more}")
        status, verdict = self._verify(life.root)
        if status != 0:
            life.fail(f"verify, after the end: {status}: {verdict['findings']}")

    # -- events --------------------------------------------------------------------------------------

    def _forks(self, life: Life, events: list[str]) -> Iterator[Life]:
        for event in ("forked", "imported", "rolled back", "pruned"):
            if event not in events:
                continue
            made = self._named(life, event)
            shutil.copytree(life.output, made.output)
            try:
                self._fork(life, made)
            except AssertionError as refused:
                made.fail(f"refused: {refused}")
            yield made

    def _fork(self, life: Life, made: Life) -> None:
        if made.event == "imported":
            archive = made.output.with_suffix(".zip")
            self._command("export", life.root, str(archive))
            self._command("import", str(archive), made.root)
        else:
            self._command("fork", life.root, made.root)
        if made.event == "rolled back":
            self._roll_back(made)
        elif made.event == "pruned":
            self._command("prune", made.root, "--keep-batches", "2", "--delete", "--idle", "0")

    def _roll_back(self, life: Life, to: int | None = None) -> None:
        _, verdict = self._verify(life.root)
        latest = verdict["committed"]
        if to is None:
            assert latest, "there is no earlier batch"
            to = self._rng.randrange(latest)
        options = ("--no-file-sink", "--batches-may-differ", "--idle", "0")
        self._command("rollback", life.root, "--to-batch", str(to), *options)
        for path in life.output.glob("[0-9]*.json"):
            if int(path.stem) > to:
                path.unlink()

    def _repartitions(self, spark: MatrixSpark, life: Life, events: list[str]) -> Iterator[Life]:
        if not KINDS[life.cell.kind].stateful:
            return
        made = self._copy(life, "repartitioned", "")
        _, before = self._verify(made.root)
        conf = ALWAYS | LAYOUTS[life.cell.layout].conf
        asked = {"repartition": self._files + made.root, "to": _PARTITIONS, "conf": conf}
        refused = list(spark.ask(**asked))[-1]["done"]
        if refused:
            made.fail(f"Spark: {refused}")
        yield made
        if "repartitioned, rolled back" in events and not refused:
            back = self._copy(made, "repartitioned, rolled back", "")
            try:
                self._roll_back(back, before["committed"])
            except AssertionError as mistake:
                back.fail(f"refused: {mistake}")
            yield back

    def _named(self, life: Life, event: str, by: str = "") -> Life:
        suffix = event.replace(", ", "-").replace(" ", "-") + by
        return Life(life.cell, event, f"{life.root}-{suffix}", life.output.parent / suffix, life.source)

    def _copy(self, life: Life, event: str, by: str) -> Life:
        made = self._named(life, event, by)
        shutil.copytree(life.output, made.output)
        self._command("fork", life.root, made.root)
        return made

    def _moment(self, root: str) -> str:
        """Return where a killed query was: between batches, planned, or with part of its state written."""
        with PeaceFileSystem(self._cluster.http_address) as files:
            layout = read_layout(PeaceTree(files), root)
        planned, done = max(layout.offsets, default=-1), max(layout.commits, default=-1)
        if planned == done:
            return "between batches"
        newest = {_newest(files) for files in layout.stores.values()}
        if not newest or max(newest) <= planned:
            return "a batch planned"
        return "state written" if len(newest) == 1 else "part of the state written"

    # -- commands ------------------------------------------------------------------------------------

    def _verify(self, root: str) -> tuple[int, dict[str, Any]]:
        status, said = self._run("verify", root, "--json")
        verdict: dict[str, Any] = json.loads(said)
        return status, verdict

    def _command(self, *words: str) -> None:
        status, said = self._run(*words)
        assert status == 0, (words, said)

    def _run(self, *words: str) -> tuple[int, str]:
        coordinator = f"--coordinator={self._cluster.http_address}"
        done = CliRunner().invoke(checkpoint, [words[0], coordinator, *words[1:]])
        assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
        return done.exit_code, done.stdout if done.exit_code in (0, 3, 4, 5) else done.output


def _newest(files: StoreFiles) -> int:
    return max((version.number for version in (*files.changes, *files.snapshots)), default=0)
