"""`peacefs checkpoint` handles the checkpoints of dataflow units, and of programs with paged state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.command import application
from peacefs.state import Checkpointer, DirectoryStore, PageManager, PeaceStore, UnorderedMap

_SCHEMA = pa.schema([("key", pa.int64()), ("count", pa.int64())])
Run = Callable[..., Result]


def run(*arguments: str, **environment: str) -> Result:
    result = CliRunner().invoke(application, ["checkpoint", *arguments], env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def write(store: DirectoryStore | PeaceStore, unit: str, checkpoints: int, *, keys: int = 100_000) -> None:
    """Write checkpoints of which each after the first has one changed page and refers to the rest."""
    pages = PageManager(memory_bytes_max=64 << 20)
    checkpointer = Checkpointer(pages, store, unit, keep=10)
    counts = UnorderedMap.create(pages.page_set("counts"), _SCHEMA, "key")
    counts.add_at(np.arange(keys), 1)
    for _ in range(checkpoints):
        checkpointer.checkpoint()
        counts.add_at([7], 1)
    checkpointer.close()


def record(units: dict[str, int]) -> bytes:
    """Write the record as a dataflow's controller does."""
    described = {
        unit: {
            "incarnation": 2,
            "sequence": sequence,
            "pages_written": 1,
            "pages_referred": 80,
            "bytes_written": 65_536,
            "pause_us": 310,
            "recorded_ms": 1_790_000_000_000,
        }
        for unit, sequence in units.items()
    }
    query = {"format": 1, "query": "logins", "technique": "sguard", "units": described}
    return json.dumps(query).encode()


def test_unit_checkpoints_are_listed_shown_and_verified(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "logins"
    root.mkdir(parents=True)
    write(DirectoryStore(root), "windows", 3)
    write(DirectoryStore(root), "first%20unit", 1)
    (root / "query.json").write_bytes(record({"windows": 2, "first unit": 1}))
    heading, first, second = run("ls", tmp_path.as_uri()).stdout.splitlines()
    assert heading.split()[:3] == ["SEQUENCE", "STORED", "PAGES"]
    assert first.split()[-4:] == ["logins", "first", "unit", str(root)]
    assert second.split()[:2] == ["2", "3"] and second.split()[-2:] == ["windows", str(root)]
    listed = [json.loads(line) for line in run("ls", "--json", tmp_path.as_uri()).stdout.splitlines()]
    assert [(each["unit"], each["sequence"], each["sequences"]) for each in listed] == [
        ("first unit", 1, [1]),
        ("windows", 2, [1, 2, 3]),
    ]
    assert listed[1]["generations"] == [1, 2] and listed[1]["page_sets"] == ["counts"]
    shown = run("show", root.as_uri()).stdout
    assert "Begins with checkpoint:   2" in shown and "0.31 ms" in shown
    verified = run("verify", root.as_uri())
    assert verified.exit_code == 0
    assert "unit windows: checkpoint 2 is whole" in verified.stdout


def test_unit_checkpoint_that_is_damaged_is_named(tmp_path: Path) -> None:
    """An unneeded one may be damaged; for the one that a unit starts from, the verdict says what helps."""
    write(DirectoryStore(tmp_path), "windows", 3)
    (tmp_path / "query.json").write_bytes(record({"windows": 2}))
    pages = tmp_path / "windows-3" / "pages-3"
    pages.write_bytes(bytes(pages.stat().st_size))
    assert run("verify", tmp_path.as_uri()).exit_code == 0
    own = tmp_path / "windows-2" / "pages-2"
    data = bytearray(own.read_bytes())
    data[1000] ^= 1
    own.unlink()
    own.write_bytes(data)
    verified = run("verify", tmp_path.as_uri())
    assert verified.exit_code == 4
    assert "checkpoint 2 is damaged" in verified.stdout and "fails its checksum" in verified.stdout
    assert "checkpoint 1 is sound" in verified.stdout
    (tmp_path / "windows-1" / "index").unlink()
    assert run("verify", tmp_path.as_uri()).exit_code == 5
    assert [
        each["sequence"] for each in map(json.loads, run("ls", "--json", tmp_path.as_uri()).stdout.splitlines())
    ]
    (tmp_path / "query.json").write_bytes(b"{")
    broken = run("verify", tmp_path.as_uri())
    assert broken.exit_code == 1 and "query.json cannot be read" in broken.stderr


def test_state_of_a_program_is_a_checkpoint_too(tmp_path: Path) -> None:
    """Without a query, a program starts from the latest checkpoint."""
    write(DirectoryStore(tmp_path), "visits", 2)
    (listed,) = map(json.loads, run("ls", "--json", tmp_path.as_uri()).stdout.splitlines())
    assert (listed["query"], listed["unit"], listed["sequence"]) == (None, "visits", 2)
    assert "a program with paged state" in run("show", tmp_path.as_uri()).stdout
    assert run("verify", tmp_path.as_uri()).exit_code == 0


@pytest.mark.cluster
def test_unit_checkpoints_in_peacefs_are_verified(tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path, datanodes=3, port=0) as cluster,
        PeaceFileSystem(cluster.http_address, user="alice") as files,
    ):
        write(PeaceStore(files, root="/checkpoints/logins"), "windows", 3)
        files.write("/checkpoints/logins/query.json", record({"windows": 3}))
        environment = {"PEACEFS_COORDINATOR": cluster.http_address, "HADOOP_USER_NAME": "alice"}
        (listed,) = map(json.loads, run("ls", "--json", "/", **environment).stdout.splitlines())
        assert (listed["query"], listed["sequence"]) == ("logins", 3)
        assert len(listed["generations"]) > 1
        assert run("verify", "/checkpoints/logins", **environment).exit_code == 0
