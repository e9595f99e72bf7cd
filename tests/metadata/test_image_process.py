"""If the process that writes the image is killed, another process goes on from the log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.waiting import wait_until

from benchmarks.processor_time import children_of
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite import file_image
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.sqlite.store_place import lock_of_image_process
from peacefs.coordinator.metadata.store import Metadata, MetadataFault
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import NamespacePath, parse_path


def _make(metadata: Metadata, path: NamespacePath) -> None:
    assert run_now(metadata, lambda tx: namespace.mkdirs(tx, path, "root", 0o755, 1))


def _names_in(store: Path) -> list[str]:
    """Return the names in the root of an image, read with SQL.

    Another process reads them, since two SQLite libraries in one process release each other's locks.
    """
    read = (
        "import sqlite3, sys; [print(*row) for row in sqlite3.connect(sys.argv[1], uri=True).execute(sys.argv[2])]"
    )
    query = "SELECT name FROM entry WHERE parent = 1 ORDER BY name"
    done = subprocess.run(
        [sys.executable, "-c", read, f"file:{store}?mode=ro", query], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def _names_after_a_turn(metadata: Metadata, store: Path) -> list[str]:
    metadata.tend(idle=False)
    return _names_in(store)


@pytest.mark.evidence("image-process-killed")
def test_process_of_the_image_that_is_killed_is_started_again_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_image, "image_entries_behind_max", 3)
    monkeypatch.setattr(file_image, "image_restart_pause_s", 0.0)
    store = tmp_path / "metadata.sqlite"
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    before = set(children_of(os.getpid()))
    made: list[str] = []
    killed: set[int] = set()
    for _ in range(2):
        for _ in range(5):
            made.append(f"d{len(made):02}")
            _make(metadata, parse_path(f"/{made[-1]}"))
        wait_until(lambda: _names_after_a_turn(metadata, store) == made, "the image has what the log has")
        (process,) = set(children_of(os.getpid())) - before - killed
        os.kill(process, signal.SIGKILL)
        killed.add(process)
    for _ in range(2):
        # The keeper has not noticed the death yet.
        made.append(f"d{len(made):02}")
        _make(metadata, parse_path(f"/{made[-1]}"))
    metadata.close()
    assert _names_in(store) == made
    again = open_store(store, owner="root")
    assert [entry.name for entry in namespace.list_page(again.reader(), parse_path("/")).entries] == made
    again.close()


@pytest.mark.evidence("image-process-killed")
def test_process_of_the_image_that_dies_whenever_it_is_started_stops_the_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_image, "image_entries_behind_max", 1)
    monkeypatch.setattr(file_image, "image_restart_pause_s", 0.0)
    store = tmp_path / "metadata.sqlite"
    metadata = open_store(store, owner="root")
    metadata.begin_epoch()
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/bin/false")
        _make(metadata, parse_path("/kept"))
        wait_until(lambda: _has_failed(metadata), "the metadata has failed")
    with pytest.raises(MetadataFault):
        _make(metadata, parse_path("/late"))
    metadata.close()
    again = open_store(store, owner="root")
    assert [entry.name for entry in namespace.list_page(again.reader(), parse_path("/")).entries] == ["kept"]
    again.close()


def _has_failed(metadata: Metadata) -> bool:
    try:
        metadata.tend(idle=False)
    except MetadataFault:
        return True
    return False


@pytest.mark.evidence("image-process-killed")
def test_next_coordinator_waits_for_the_process_that_writes_the_image(tmp_path: Path) -> None:
    """The process of a killed coordinator may be in the middle of a transaction, with old entries."""
    store = tmp_path / "metadata.sqlite"
    open_store(store, owner="root").close()
    module = "peacefs.coordinator.metadata.sqlite.image_process"
    lock = lock_of_image_process(store)
    with subprocess.Popen(
        [sys.executable, "-m", module, str(store)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(lock,),
    ) as process:
        os.close(lock)
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.read(1)
        process.send_signal(signal.SIGSTOP)
        process.stdin.close()
        with ThreadPoolExecutor(1) as pool:
            opened = pool.submit(open_store, store, owner="root")
            with pytest.raises(TimeoutError):
                opened.result(0.5)
            process.send_signal(signal.SIGCONT)
            process.wait(60)
            opened.result(60).close()
