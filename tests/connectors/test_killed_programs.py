"""Programs between connectors are killed, with their nodes and their broker. Judges read what others see."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from support.connector_rows import as_json, rows, totals
from support.kafka import KafkaBroker, running_broker
from support.long_runs import often
from support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

_TESTS = Path(__file__).parent.parent
#: Longer than the transaction timeout of `connector_query.py`.
_OUTAGE_S = 5.0


class Program:
    """The program of `connector_query.py`, which can be killed and begun again."""

    def __init__(self, directory: Path, source: str, sink: str) -> None:
        self._directory = directory
        self._command = [sys.executable, "-m", "support.connector_query", str(directory), source, sink]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *ends: str) -> None:
        with (self._directory / "errors").open("ab") as errors:
            environment = {**os.environ, "TMPDIR": str(self._directory)}
            command = [*self._command, *ends]
            self._process = subprocess.Popen(command, cwd=_TESTS, env=environment, stdout=errors, stderr=errors)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def kill_node(self, chance: random.Random) -> None:
        """Kill one of the program's nodes, if there are any yet."""
        assert self._process is not None
        file = self._directory / f"nodes-{self._process.pid}"
        pids = [int(pid) for pid in file.read_text().split()] if file.exists() else []
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(pids), signal.SIGKILL)

    def check_alive(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.errors()

    def wait(self) -> None:
        assert self._process is not None
        assert self._process.wait(PATIENCE_S) == 0, self.errors()

    def errors(self) -> str:
        return (self._directory / "errors").read_text()[-3000:]


@contextlib.contextmanager
def running_program(directory: Path, source: str, sink: str) -> Iterator[Program]:
    program = Program(directory, source, sink)
    try:
        yield program
    finally:
        program.kill()


def _write(broker: KafkaBroker, first: int, last: int) -> None:
    for user in range(3):
        values = [as_json(each) for each in rows(first, last) if int(each["user"][1:]) % 3 == user]
        broker.write("in", values, partition=user)


def _read(broker: KafkaBroker) -> list[tuple[str, int, int]]:
    found = [json.loads(value) for value in broker.read_committed("out")]
    return [(row["user"], row["n"], row["total"]) for row in found]


def _wait_rows(program: Program, read: Any, count: int) -> None:
    def there() -> bool:
        program.check_alive()
        return len(read()) >= count

    wait_until(there, f"{count} rows")


@pytest.mark.long("minutes of kills")
def test_kafka_rows_come_once_though_program_nodes_and_broker_are_killed(tmp_path: Path) -> None:
    """Each user's running total is right, and each row is there once, in a plain consumer's eyes.

    The broker is away for longer than the transaction timeout, both with the program alive and with it dead.
    """
    seed = int(os.environ.get("PEACEFS_SEED", "1"))
    print("seed", seed)
    chance = random.Random(seed)
    with running_broker(tmp_path / "broker") as broker:
        broker.create("in", 3)
        broker.create("out", 3)
        place = f"kafka:{broker.servers}"
        with running_program(tmp_path, f"{place}:in", f"{place}:out") as program:
            program.start()
            last = 0
            for number in range(often(4, 8)):
                _write(broker, last + 1, last + 400)
                last += 400
                time.sleep(chance.uniform(0, 1))
                event = ("program", "node", "broker", "both")[number % 4]
                if event in ("program", "both"):
                    program.kill()
                if event == "node":
                    program.kill_node(chance)
                if event in ("broker", "both"):
                    broker.kill()
                    time.sleep(_OUTAGE_S)
                    broker.start()
                if event in ("program", "both"):
                    program.start()
                _wait_rows(program, lambda: _read(broker), len(totals(rows(1, last))) // 2)
            _wait_rows(program, lambda: _read(broker), len(totals(rows(1, last))))
            found = _read(broker)
            assert len(found) == len(set(found))
            assert set(found) == totals(rows(1, last))


def _files(directory: Path) -> list[tuple[str, int, int]]:
    if not list(directory.glob("user=*/*.parquet")):
        return []
    found = pyarrow.dataset.dataset(directory, format="parquet", partitioning="hive").to_table().to_pylist()
    return [(row["user"], row["n"], row["total"]) for row in found]


def test_files_come_once_though_the_program_is_killed(tmp_path: Path) -> None:
    """The output directory never has a row twice, and in the end has each."""
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    per_file, rounds = 200, often(1, 8)

    def put(number: int) -> None:
        staged = source / f"_{number}"
        written = rows(number * per_file + 1, (number + 1) * per_file)
        staged.write_bytes(b"".join(as_json(each) + b"\n" for each in written))
        staged.rename(source / f"{number:04d}.jsonl")

    with running_program(tmp_path, f"files:jsonl:{source}", f"files:parquet:{out}") as program:
        for number in range(rounds):
            put(number)
            program.start()
            _wait_rows(program, lambda: _files(out), len(totals(rows(1, number * per_file))) + 1)
            program.kill()
            found = _files(out)
            assert len(found) == len(set(found))
        put(rounds)
        program.start("ends")
        program.wait()
    found = _files(out)
    assert len(found) == len(set(found))
    assert set(found) == totals(rows(1, (rounds + 1) * per_file))


@pytest.mark.long("minutes of kills")
def test_delta_versions_come_once_though_the_program_is_killed(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    source, table = tmp_path / "in", tmp_path / "table"
    source.mkdir()

    def read() -> list[tuple[str, int, int]]:
        if not (table / "_delta_log").exists():
            return []
        found = deltalake.DeltaTable(str(table)).to_pyarrow_table().to_pylist()
        return [(row["user"], row["n"], row["total"]) for row in found]

    with running_program(tmp_path, f"files:jsonl:{source}", f"delta:{table}") as program:
        for number in range(3):
            written = rows(number * 200 + 1, (number + 1) * 200)
            (source / "_staged").write_bytes(b"".join(as_json(each) + b"\n" for each in written))
            (source / "_staged").rename(source / f"{number}.jsonl")
            program.start(*(["ends"] if number == 2 else []))
            if number < 2:
                _wait_rows(program, read, len(totals(rows(1, number * 200))) + 1)
                program.kill()
        program.wait()
    found = read()
    assert len(found) == len(set(found))
    assert set(found) == totals(rows(1, 600))
