"""Harm files of real checkpoints, and compare the verdicts of `verify` with what Spark does.

For every kind of file and every harm: if the verdict says that a query starts, it must start with the named batch,
and every batch must have the same rows as without the harm. Otherwise the start must fail. If the verdict says
that Spark does not check the file, Spark must not check it. A named repair or rollback is made on another copy,
which must then give the same rows.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.cut import plan_cut
from peacefs.spark_connector.checkpoints.findings import Verdict
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.repairing import repair
from peacefs.spark_connector.checkpoints.tree import LocalTree
from peacefs.spark_connector.checkpoints.verification import verify
from peacefs.spark_connector.java import find_java, java_environment

from .restarted_query import Outcome

#: Input files before the end of the checkpoint, at its end, and after the restart.
DONE, PLANNED, ALL = 8, 9, 10
#: Files that contain checksums.
_PACKED = (".changelog", ".delta", ".zip", ".snapshot", ".sst")
SCRIPT = Path(__file__).parent / "restarted_query.py"
#: Text in the failure of a query whose Spark found a wrong checksum file.
_COMPARED = "Checksum error"


class Runner(Protocol):
    """Runs queries in some Spark."""

    def run(self, query: str, source: str, checkpoint: str, fails_at: int | None = None) -> Outcome: ...


class SparkProcess:
    """The Spark of another Python, in its own process."""

    def __init__(self, python: str, scratch: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        variables = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python}
        self._process = subprocess.Popen(
            [python, "-P", str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=kept | java_environment(find_java(), scratch) | variables,
        )
        self.version: str = self._answer()["version"]

    def run(self, query: str, source: str, checkpoint: str, fails_at: int | None = None) -> Outcome:
        asked = {"query": query, "source": source, "checkpoint": checkpoint, "fails_at": fails_at}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        batches = {int(batch): rows for batch, rows in answer["batches"].items()}
        return Outcome(batches, answer["failure"])

    def close(self) -> None:
        self._process.communicate(timeout=120)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


# -- harms -----------------------------------------------------------------------------------------


def delete(path: Path) -> None:
    for beside in (path, *_checksums(path)):
        beside.unlink(missing_ok=True)


def truncate(path: Path) -> None:
    _replace(path, path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    _replace(path, b"")


def flip(path: Path) -> None:
    """Flip a bit: in an SST file in the first data block, in text in a digit. Keep checksum files."""
    path.write_bytes(_flipped(path))


def flip_unseen(path: Path) -> None:
    """Flip a bit and remove the checksum file, for files that contain checksums."""
    _replace(path, _flipped(path))


def _flipped(path: Path) -> bytes:
    """Flip a byte. In text, replace a digit by another, so that it stays readable."""
    data = bytearray(path.read_bytes())
    digits = [place for place, byte in enumerate(data) if chr(byte).isdigit()]
    if path.suffix == ".sst":
        place = 8
    elif path.suffix in _PACKED or path.name == "schema" or not digits:
        place = len(data) // 2
    else:
        place = digits[-1]
    data[place] ^= 0x01
    return bytes(data)


def _replace(path: Path, data: bytes) -> None:
    """Replace a file and remove its checksum file, so that only the file itself can show the damage."""
    delete(path)
    path.write_bytes(data)


def _checksums(path: Path) -> list[Path]:
    own = path.with_name(f"{path.name}.crc")
    return [own, path.with_name(f".{path.name}.crc"), path.with_name(f".{own.name}.crc")]


HARMS: dict[str, Callable[[Path], None]] = {
    "deleted": delete,
    "cut short": truncate,
    "emptied": empty,
    "a bit flipped": flip,
    "the same, no checksum file": flip_unseen,
}


def applies(harm: str, path: Path) -> bool:
    """Return False for text without a checksum file, where no one can see that a letter has changed."""
    return harm != "the same, no checksum file" or path.suffix in _PACKED


# -- kinds of files --------------------------------------------------------------------------------

#: For logs, only the presence of state and of its ids in commits matters, not the format of state.
_WITH_LOGS = ("copy", "rocksdb")
_COMMITS = ("commit of the last batch done", "older commit")
_STATE_KINDS = (
    "operator's metadata",
    "schema of state",
    "latest snapshot",
    "snapshot before it",
    "changes since the snapshot",
    "changes before the snapshot",
    "SST file of the latest snapshot",
)
_STATE = re.compile(r"(\d+)(?:_[0-9a-f-]+)?\.(changelog|delta|zip|snapshot)")


def matters(query: str, kind: str) -> bool:
    """Return whether a kind of file can behave differently for this query than for others."""
    return query in _WITH_LOGS or kind in _STATE_KINDS or (query.endswith("format 2") and kind in _COMMITS)


def kinds(root: Path, query: str) -> dict[str, Path]:
    """Return one file of every kind in the checkpoint."""
    planned, done = _latest(root / "offsets"), _latest(root / "commits")
    found = {
        "metadata": root / "metadata",
        "offsets of the last batch": root / f"offsets/{planned}",
        "offsets of the batch before": root / f"offsets/{planned - 1}",
        "older offsets": root / f"offsets/{planned - 2}",
        "commit of the last batch done": root / f"commits/{done}",
        "older commit": root / f"commits/{done - 1}",
    }
    log = {int(path.name.split(".")[0]): path for path in (root / "sources/0").iterdir() if path.name[0] != "."}
    compacted = max(number for number, path in log.items() if path.suffix)
    found["last entry of a source's log"] = log[max(log)]
    if compacted != max(log):
        found["last compaction of a source's log"] = log[compacted]
        found["entry since that"] = log[compacted + 1]
    found["entry before that"] = log[compacted - 1]
    if query == "copy":
        return found
    found["operator's metadata"] = root / "state/0/_metadata/metadata"
    store = root / ("state/0/1/right-keyToNumValues" if query == "join" else "state/0/1")
    found["schema of state"] = next((root / "state/0/0").rglob("schema"))
    versions = {(number, path.suffix): path for number, path in _versions(store)}
    snapshots = sorted(number for number, suffix in versions if suffix in (".zip", ".snapshot"))
    changes = sorted(number for number, suffix in versions if suffix in (".changelog", ".delta"))
    base = max((number for number in snapshots if number <= done + 1), default=0)
    for name, number in (("latest snapshot", base), ("snapshot before it", base - 1)):
        if number in snapshots or name == "snapshot before it":
            number = max((each for each in snapshots if each <= number), default=0)
        for suffix in (".zip", ".snapshot"):
            if (number, suffix) in versions:
                found[name] = versions[number, suffix]
    since = [number for number in changes if base < number <= done + 1]
    before = [number for number in changes if number <= base]
    suffix = ".delta" if query == "records" else ".changelog"
    if since:
        found["changes since the snapshot"] = versions[since[-1], suffix]
    if before:
        found["changes before the snapshot"] = versions[before[-1], suffix]
    if (latest := found.get("latest snapshot")) and latest.suffix == ".zip":
        layout = read_layout(LocalTree(), str(root))
        members = Inspection(LocalTree(), layout).snapshot(layout.by_path[str(latest.relative_to(root))]).sst_files
        if members:
            found["SST file of the latest snapshot"] = store / "SSTs" / members[-1].dfs_sst_file_name
    # Spark before 4.0 writes no metadata of operators.
    return {kind: path for kind, path in found.items() if path.exists()}


def _latest(directory: Path) -> int:
    return max(int(path.name) for path in directory.iterdir() if path.name.isdigit())


def _versions(store: Path) -> Iterator[tuple[int, Path]]:
    for path in store.iterdir():
        if found := _STATE.fullmatch(path.name):
            yield int(found[1]), path


# -- the ordeal ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Trial:
    """The verdict on a harmed checkpoint, and Spark's behaviour. `against` is empty if they agree."""

    verdict: Verdict
    said: str
    against: list[str] = field(default_factory=list)


class Ordeal:
    """The checkpoints of one query: one with all batches done, one with a planned batch."""

    def __init__(self, runner: Runner, query: str, directory: Path) -> None:
        self._runner = runner
        self._query = query
        self._directory = directory
        self._source = directory / "in"
        self._source.mkdir(parents=True)
        self._copies = 0
        self.done, self.planned = directory / "done", directory / "planned"
        self._put(range(DONE))
        done = self._run(self.done)
        assert done.failure is None and list(done.batches) == list(range(DONE)), done
        shutil.copytree(self.done, self.planned)
        self._put(range(DONE, PLANNED))
        stopped = self._runner.run(query, str(self._source), str(self.planned), fails_at=DONE)
        assert stopped.failure is not None and not stopped.batches, stopped
        self._put(range(PLANNED, ALL))
        rest = self._run(self._copy(self.done))
        assert rest.failure is None and list(rest.batches) == list(range(DONE, ALL)), rest
        self._expected = done.batches | rest.batches
        if query not in ("copy", "join"):
            words = Counter(word for path in self._source.iterdir() for word in path.read_text().split())
            assert self._total(self._expected) == words

    def trial(self, root: Path, path: Path, harm: Callable[[Path], None]) -> Trial:
        """Harm a file of a copy of a checkpoint, and compare the verdict with Spark's behaviour."""
        harmed = self._copy(root)
        harm(harmed / path.relative_to(root))
        verdict = judge(harmed)
        trial = Trial(verdict, _said(verdict))
        if verdict.repair is not None:
            repaired = self._copy(harmed)
            repair(LocalTree(), str(repaired), may_differ=True)
            self._expect(trial, repaired, verdict.repair.goes_on_with, "after the repair")
        if verdict.last_good is not None and not verdict.restarts:
            back = self._copy(harmed)
            cut_back(back, verdict.last_good)
            self._expect(trial, back, verdict.last_good + 1, f"after a rollback to {verdict.last_good}")
        if verdict.restarts:
            assert verdict.goes_on_with is not None
            joined = any("together with what is new" in note.reason for note in verdict.notes)
            self._expect(trial, harmed, verdict.goes_on_with, "as it is", joined=joined)
            return trial
        outcome = self._run(harmed)
        if any(finding.stops and finding.noticed for finding in verdict.findings):
            if outcome.failure is None:
                trial.against.append(f"Spark starts: {_short(outcome)}")
        elif _COMPARED in (outcome.failure or ""):
            trial.against.append(f"Spark notices: {_short(outcome)}")
        return trial

    def _expect(self, trial: Trial, root: Path, first: int, when: str, *, joined: bool = False) -> None:
        """Expect every batch from `first` on with its rows. If batches are `joined`, compare all rows together."""
        outcome = self._run(root)
        wanted = {batch: rows for batch, rows in self._expected.items() if batch >= first}
        if outcome.failure is not None:
            trial.against.append(f"{when} Spark fails: {_short(outcome)}")
        elif joined and self._total(outcome.batches) == self._total(wanted):
            return
        elif outcome.batches != wanted:
            differing = [batch for batch, rows in outcome.batches.items() if self._expected.get(batch) != rows]
            trial.against.append(
                f"{when} Spark runs {list(outcome.batches)}, not {list(wanted)}; other: {differing}"
            )

    def _total(self, batches: dict[int, list[list[Any]]]) -> object:
        """Return the rows that a reader of the sink has in the end: the last count of each word."""
        rows = [row for batch in sorted(batches) for row in batches[batch]]
        return sorted(rows) if self._query in ("copy", "join") else dict(rows)

    def _run(self, checkpoint: Path) -> Outcome:
        return self._runner.run(self._query, str(self._source), str(checkpoint))

    def _copy(self, root: Path) -> Path:
        """Copy to a new path each time, because Spark caches by path."""
        self._copies += 1
        place = self._directory / f"copy-{self._copies}"
        shutil.copytree(root, place)
        return place

    def _put(self, parts: range) -> None:
        for part in parts:
            path = self._source / f"{part}.txt"
            path.write_text("".join(f"{(row + part) % 7}\n" for row in range(20)))
            os.utime(path, (part + 1, part + 1))


def judge(root: Path) -> Verdict:
    tree = LocalTree()
    return verify(Inspection(tree, read_layout(tree, str(root))))


def cut_back(root: Path, batch: int) -> None:
    """Do what a rollback does, in place."""
    tree = LocalTree()
    for path in plan_cut(Inspection(tree, read_layout(tree, str(root))), batch).remove:
        (root / path).unlink(missing_ok=True)


def _said(verdict: Verdict) -> str:
    stops = [finding for finding in verdict.findings if finding.stops]
    if not stops:
        again = verdict.committed is not None and verdict.goes_on_with == verdict.planned
        return "starts, repeats a batch" if again else "starts"
    ways = ["repair"] if verdict.repair is not None else []
    ways += ["rollback"] if verdict.last_good is not None else []
    failing = "fails" if any(finding.noticed for finding in stops) else "goes unnoticed"
    return f"{failing}; {' or '.join(ways) or 'lost'}"


def _short(outcome: Outcome) -> str:
    return re.sub(r"\s+", " ", outcome.failure or str(sorted(outcome.batches)))[:300]
