"""The I/O service on a real cluster: checkpoints appear whole or leave nothing, whatever dies meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.io_service import IOService
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import (
    AccessDenied,
    BadRequest,
    CheckpointCancelled,
    CheckpointDamaged,
    FileAlreadyExists,
    FileNotFound,
    NamesQuotaExceeded,
    PeacefsError,
)
from peacefs.protocol.limits import MIB

pytestmark = pytest.mark.cluster

WaitUntil = Callable[..., None]


def some_pages(count: int, size: int = 8192) -> list[bytes]:
    return [os.urandom(size) for _ in range(count)]


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_pages_come_back_as_they_were_written(files: PeaceFileSystem, home: str, workers: int) -> None:
    service = IOService(files, root=home, workers=workers, chunk_bytes=MIB)
    pages: list[bytes | bytearray | memoryview] = [*some_pages(300), b"", bytearray(b"odd"), memoryview(b"ones")]
    pages += some_pages(40, 100_003)
    published = service.write("unit", 7, pages)
    length = sum(len(page) for page in pages)
    assert (published.path, published.length) == (f"{home}/unit-7", length)
    names = [entry.name for entry in files.list(f"{home}/unit-7")]
    assert names == ["manifest.json", *(f"part-{number:05}" for number in range(min(workers, -(-length // MIB))))]
    restored = service.read("unit")
    assert (restored.unit, restored.sequence) == ("unit", 7)
    assert restored.pages == pages
    assert files.schedule().grants_in_flight == 0


@pytest.mark.parametrize("pages", [[], [b""], [b"", b"x", b""], [bytes(MIB)]], ids=["none", "empty", "x", "fast"])
def test_small_checkpoints_and_those_of_nothing(files: PeaceFileSystem, home: str, pages: list[bytes]) -> None:
    service = IOService(files, root=home)
    service.write("unit", 0, pages)
    assert service.read("unit", 0).pages == pages


def test_a_sequence_is_never_written_over(files: PeaceFileSystem, home: str) -> None:
    service = IOService(files, root=home, chunk_bytes=MIB)
    first = some_pages(300)
    service.write("unit", 1, first)
    with pytest.raises(FileAlreadyExists, match="unit-1 exists"):
        service.write("unit", 1, some_pages(300))
    # Run two at once, neither of which finds a checkpoint at its start.
    both = [service.submit("unit", 2, some_pages(300)) for _ in range(2)]
    outcomes = [_outcome(each.result) for each in both]
    assert sorted(type(outcome) for outcome in outcomes if isinstance(outcome, Exception)) == [FileAlreadyExists]
    assert service.read("unit", 1).pages == first
    assert [entry.name for entry in files.list(home)] == ["unit-1", "unit-2"]


def _outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except PeacefsError as error:
        return error


def test_older_checkpoints_of_the_unit_go(files: PeaceFileSystem, home: str) -> None:
    service = IOService(files, root=home, keep=2)
    for sequence in range(1, 12):
        published = service.write("unit", sequence, [b"data"])
        assert published.prune_fault is None
        assert published.pruned == ((sequence - 2,) if sequence > 2 else ())
    service.write("unit-1", 5, [b"another unit's"])
    assert service.sequences("unit") == [10, 11]
    # A unit that was reset, and counts from the start again, keeps its new checkpoints.
    assert service.write("unit", 3, [b"anew"]).pruned == ()
    assert service.read("unit", 3).pages == [b"anew"]
    assert service.prune("unit", 1) == [3, 10]
    assert (service.sequences("unit"), service.sequences("unit-1")) == ([11], [5])


def test_remains_of_a_dead_writer_go_when_nobody_could_complete_them(
    files: PeaceFileSystem, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = IOService(files, root=home)
    left = f"{home}/.unit-4.0123456789ab.writing"
    files.write(f"{left}/part-00000", b"x")
    service.prune("unit", 1)
    assert files.exists(left)
    monkeypatch.setattr("peacefs.client.io_service.write_token_lifetime_s", -60.0)
    service.prune("other", 1)
    assert files.exists(left)
    service.prune("unit", 1)
    assert not files.exists(left)


@pytest.mark.evidence("io-service-faults")
def test_failed_checkpoint_leaves_nothing(files: PeaceFileSystem, superuser: PeaceFileSystem, home: str) -> None:
    service = IOService(files, root=home, chunk_bytes=MIB)
    # There is room for the directory and one part; the second part exceeds the quota of names.
    superuser.quotas.set(home, names=3)
    with pytest.raises(NamesQuotaExceeded):
        service.write("unit", 1, some_pages(300))
    superuser.quotas.set(home, names=-1)
    files.set_permission(home, 0o555)
    with pytest.raises(AccessDenied):
        service.write("unit", 1, some_pages(300))
    assert files.list(home) == []
    assert files.schedule().grants_in_flight == 0


def test_directory_that_is_no_checkpoint_is_said(files: PeaceFileSystem, home: str) -> None:
    service = IOService(files, root=home)
    with pytest.raises(FileNotFound, match="no checkpoint of unit"):
        service.read("unit")
    service.write("unit", 1, [b"data"])
    with files.open_for_appending(f"{home}/unit-1/part-00000") as sink:
        sink.write(b"more")
    with pytest.raises(CheckpointDamaged, match="has 8 bytes, the manifest says 4"):
        service.read("unit")
    files.write(f"{home}/unit-1/manifest.json", b"junk", overwrite=True)
    with pytest.raises(CheckpointDamaged):
        service.read("unit")
    for wrong in ({"workers": 0}, {"chunk_bytes": 1}, {"keep": 0}):
        with pytest.raises(BadRequest):
            IOService(files, **wrong)  # type: ignore[arg-type]


# -- with clusters of their own ----------------------------------------------------------------------


@pytest.fixture
def tight(tmp_path: Path) -> Iterator[LocalCluster]:
    """Yield a cluster in which two chunks can be written at a time."""
    options = ["--streams-per-node=1"]
    with LocalCluster(tmp_path, datanodes=6, port=0, coordinator_options=options) as running:
        yield running


def test_one_that_waits_is_cancelled_and_another_keeps_its_age(tight: LocalCluster, wait_until: WaitUntil) -> None:
    with PeaceFileSystem(tight.http_address) as files:
        service = IOService(files, chunk_bytes=MIB)
        held = [files.open_for_writing(f"/held-{number}") for number in range(2)]
        for sink in held:
            # It gets a grant for a chunk, and keeps it while its writer is idle.
            sink.write(bytes(6 * MIB))
        wait_until(lambda: files.schedule().grants_in_flight == 2, "both slots are taken")
        first = service.submit("unit", 1, some_pages(600))
        wait_until(lambda: first.asked_s is not None and files.schedule().sets_waiting == 1, "it waits")
        second = service.submit("unit", 1, some_pages(300), instead_of=first)
        with pytest.raises(CheckpointCancelled):
            first.result()
        wait_until(lambda: files.schedule().chunks_waiting == 3, "the smaller one waits")
        assert second.asked_s == first.asked_s
        assert not second.done
        for sink in held:
            sink.close()
        assert second.result(60).length == 300 * 8192
        with pytest.raises(FileAlreadyExists, match="was published before"):
            service.submit("unit", 2, [], instead_of=second)
        third = service.submit("unit", 3, some_pages(6000))
        assert third.cancel()
        assert [entry.name for entry in files.list("/checkpoint")] == ["unit-1"]
        wait_until(lambda: files.schedule().grants_in_flight == 0, "all capacity is back")


@pytest.mark.evidence("io-service-faults")
def test_datanodes_and_the_coordinator_die_in_the_middle(tmp_path: Path, wait_until: WaitUntil) -> None:
    with (
        LocalCluster(tmp_path, datanodes=5, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        service = IOService(files, chunk_bytes=MIB)
        pages = some_pages(5000)
        # Requests to the stopped datanode hang until their hops time out.
        os.kill(cluster.datanodes[0].pid, signal.SIGSTOP)
        writing = service.submit("unit", 1, pages)
        wait_until(lambda: writing.asked_s is not None, "its set is stated")
        assert not writing.done
        cluster.datanodes[0].kill()
        cluster.coordinator.kill()
        restarting = threading.Thread(target=cluster.restart, args=(cluster.coordinator,))
        restarting.start()
        writing.result(90)
        restarting.join()
        # The first chunks go to the few datanodes that have reconnected, and are copied later.
        wait_until(lambda: not files.cluster_status()["chunks"]["under_replicated"], "all replicas are there")
        cluster.datanodes[1].kill()
        assert service.read("unit").pages == pages
        wait_until(lambda: files.schedule().grants_in_flight == 0, "all capacity is back")
        for node in cluster.datanodes[2:]:
            node.kill()
        with pytest.raises(PeacefsError):
            service.read("unit")
