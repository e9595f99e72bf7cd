"""`peacefs stream`: list, read, follow and trim logs, on a cluster and on the local machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from support.dataflows import SCHEMA, input_rows
from typer.testing import CliRunner, Result

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.command import application
from peacefs.dataflow.logs.directory_segments import DirectorySegments
from peacefs.dataflow.logs.log_place import open_stream
from peacefs.dataflow.logs.stream_log import StreamLogs
from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.model.stream_type import TIME, StreamType
from peacefs.protocol.errors import AlreadyBeingCreated

_KIND = StreamType(SCHEMA, "at")
Run = Callable[..., Result]


@dataclass(frozen=True)
class Place:
    """Where a test's logs are: an address, and the environment for commands on it."""

    address: str
    environment: dict[str, str]


@pytest.fixture(params=["directory", pytest.param("peacefs", marks=pytest.mark.cluster)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        return Place(tmp_path.as_uri(), {})
    cluster: LocalCluster = request.getfixturevalue("shared_cluster")
    environment = {"PEACEFS_COORDINATOR": cluster.http_address, "HADOOP_USER_NAME": "alice"}
    return Place(request.getfixturevalue("home"), environment)


@pytest.fixture
def run(place: Place) -> Run:
    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(
            application, ["stream", *arguments], env=place.environment, prog_name="peacefs"
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def write(place: Place, stream: str, written: list[pa.RecordBatch], *, segment_bytes: int = 3000) -> str:
    address = f"{place.address}/{stream}"
    coordinator = place.environment.get("PEACEFS_COORDINATOR")
    with open_stream(address, coordinator=coordinator, user="alice") as (store, name):
        logs = StreamLogs(store, segment_bytes=segment_bytes)
        log = logs.open(name, _KIND)
        for rows in written:
            log.append(Batch(log.last + 1, rows))
            logs.commit()
    return address


def values(result: Result) -> list[int]:
    """Return the values in the printed JSON; each is the row's number minus one."""
    return [json.loads(line)["value"] for line in result.stdout.splitlines()]


def test_stream_ls_finds_logs_and_says_what_they_hold(place: Place, run: Run) -> None:
    one = write(place, "deep/one", input_rows(1, batches=30, size=5))
    other = write(place, "other", input_rows(2, batches=2, size=5))
    shown = [json.loads(line) for line in run("ls", "--json", place.address).stdout.splitlines()]
    assert [(each["path"], each["first"], each["last"], each["time"]) for each in shown] == [
        (one, 1, 150, "at"),
        (other, 1, 10, "at"),
    ]
    assert shown[0]["segments"] > 3 and shown[1]["segments"] == 1
    assert shown[0]["columns"] == {"key": "string", "at": "timestamp[us]", "value": "int64"}
    heading, first, second = run("ls", place.address).stdout.splitlines()
    assert heading.split() == ["FIRST", "LAST", "SEGMENTS", "SIZE", "TIME", "PATH"]
    assert first.split()[-1] == one and second.split()[:2] == ["1", "10"]
    nowhere = run("ls", f"{place.address}/nothing")
    assert nowhere.exit_code == 1
    assert nowhere.stderr.splitlines() == [
        f"peacefs: stream ls: `{place.address}/nothing': No such file or directory"
    ]


def test_stream_cat_prints_a_line_a_row(place: Place, run: Run) -> None:
    log = write(place, "one", input_rows(1, batches=30, size=5))
    assert values(run("cat", "--json", log)) == list(range(150))
    assert values(run("cat", "--json", "--from", "73", "--upto", "80", log)) == list(range(72, 80))
    first, second = run("cat", "-n", "--upto", "2", log).stdout.splitlines()
    number, key, at, value = first.split("\t")
    assert (number, value) == ("     1", "0") and key in "abc" and at.startswith("1970-01-01T00:00:0")
    assert second.startswith("     2\t")
    third = json.loads(run("cat", "--json", "--from", "3", "--upto", "3", log).stdout)
    assert third.keys() == {"_number", "key", "at", "value"} and third["_number"] == 3
    assert values(run("cat", "--json", "--since", third["at"], log)) == list(range(2, 150))
    assert run("cat", "--since", "2100-01-01", log).stdout == ""


def test_stream_cat_prints_values_that_cut_can_cut(place: Place, run: Run) -> None:
    schema = pa.schema(
        [("at", TIME), ("text", pa.string()), ("bytes", pa.binary()), ("many", pa.list_(pa.int8()))]
    )
    rows = pa.record_batch([pa.array([0], TIME), ["a\tb\nc\\"], [b"\x00\xff"], [[1, 2]]], schema=schema)
    none = pa.record_batch([pa.array([1], TIME), [None], [None], [None]], schema=schema)
    coordinator = place.environment.get("PEACEFS_COORDINATOR")
    with open_stream(f"{place.address}/odd", coordinator=coordinator, user="alice") as (store, name):
        logs = StreamLogs(store)
        log = logs.open(name, StreamType(schema, "at"))
        log.append(Batch(1, rows))
        log.append(Batch(2, none))
        logs.commit()
    assert run("cat", f"{place.address}/odd").stdout.splitlines() == [
        "1970-01-01T00:00:00\ta\\tb\\nc\\\\\t00ff\t[1,2]",
        "1970-01-01T00:00:00.000001\t\\N\t\\N\t\\N",
    ]


def test_stream_tail_prints_the_last_rows(place: Place, run: Run) -> None:
    log = write(place, "one", input_rows(1, batches=30, size=5))
    assert values(run("tail", "--json", log)) == list(range(140, 150))
    assert values(run("tail", "--json", "-n", "3", log)) == [147, 148, 149]
    assert values(run("tail", "--json", "-n", "+149", log)) == [148, 149]
    assert values(run("tail", "--json", "-n", "1000", log)) == list(range(150))
    assert run("tail", "-n", "many", log).exit_code == 2


@pytest.mark.cluster
def test_stream_tail_follows_until_it_is_interrupted(place: Place) -> None:
    """Rows that arrive meanwhile are printed. Ctrl-C ends the command, as with `tail -f`."""
    parts = input_rows(1, batches=30, size=5)
    log = write(place, "one", parts[:10])
    command = [sys.executable, "-m", "peacefs", "stream", "tail", "-f", "-n", "1", "--json", log]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | place.environment) as tail:
        assert tail.stdout is not None
        seen = [json.loads(tail.stdout.readline())["value"]]
        assert seen == [49]
        write(place, "one", parts[10:])
        seen += [json.loads(tail.stdout.readline())["value"] for _ in range(100)]
        tail.send_signal(signal.SIGINT)
        assert tail.stdout.read() == ""
    assert seen == list(range(49, 150))
    assert tail.returncode == 130


def test_stream_trim_drops_whole_segments(place: Place, run: Run) -> None:
    log = write(place, "one", input_rows(1, batches=30, size=5))
    would = run("trim", "--upto", "60", "--dry-run", log).stdout
    assert "would go: rows 1 to" in would
    assert values(run("cat", "--json", log)) == list(range(150))
    went = run("trim", "--upto", "60", log).stdout
    assert went == would.replace("would go", "went")
    kept = values(run("cat", "--json", log))
    assert kept[-1] == 149 and 0 < kept[0] <= 60
    gone = run("cat", "--from", "1", log)
    assert gone.exit_code == 1
    (said,) = gone.stderr.splitlines()
    assert said.endswith(f"rows 1 to {kept[0]} of stream 'one' were trimmed")
    assert "0 of" in run("trim", "--before", "1970-01-01T00:00:00", log).stdout
    run("trim", "--older-than", "1s", log)
    assert len(values(run("cat", "--json", log))) <= 30, "all rows are of 1970; the last segment stays"
    assert run("trim", log).exit_code == 2


def test_stream_cat_leaves_a_torn_tail_out_and_says_so(tmp_path: Path) -> None:
    """An incomplete record is not printed. It is no error, since a writer may be appending it."""
    place = Place(tmp_path.as_uri(), {})
    log = write(place, "one", input_rows(1, batches=3, size=5))
    (segment,) = (tmp_path / "one").glob("*.log")
    segment.write_bytes(segment.read_bytes()[:-1])
    result = CliRunner().invoke(application, ["stream", "cat", "--json", log])
    assert (result.exit_code, values(result)) == (0, list(range(10)))
    assert "bytes behind row 10 are no whole record" in result.stderr


def test_stream_cat_says_where_a_record_is_rotten(tmp_path: Path) -> None:
    place = Place(tmp_path.as_uri(), {})
    log = write(place, "one", input_rows(1, batches=9, size=5), segment_bytes=100_000)
    (segment,) = (tmp_path / "one").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    result = CliRunner().invoke(application, ["stream", "cat", "--json", log])
    assert result.exit_code == 1
    sound = values(result)
    assert sound == list(range(len(sound))) and len(sound) >= 15
    (said,) = result.stderr.splitlines()
    assert said.startswith(
        f"peacefs: stream cat: `{log}': segment 1 of stream 'one' is rotten: the record at byte "
    )


def test_stream_that_is_not_there_is_one_line(place: Place, run: Run) -> None:
    for arguments in (["cat"], ["tail"], ["trim", "--upto", "1"]):
        result = run(*arguments, f"{place.address}/nothing")
        assert result.exit_code == 1
        (said,) = result.stderr.splitlines()
        assert f"there is no stream log at {place.address}/nothing" in said


def test_log_of_a_directory_has_one_writer_at_a_time(tmp_path: Path) -> None:
    """A second store, as in another process, is refused until the first one is closed."""
    with DirectorySegments(tmp_path) as one, DirectorySegments(tmp_path) as other:
        StreamLogs(one).open("s", _KIND)
        with pytest.raises(AlreadyBeingCreated, match="end that one first"):
            StreamLogs(other).open("s", _KIND)
        one.close()
        StreamLogs(other).open("s", _KIND)
