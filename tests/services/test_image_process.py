"""The process that writes a coordinator's image is killed, and paused, during changes."""

from __future__ import annotations

import getpass
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from support.services import start_service
from support.waiting import wait_until

pytestmark = pytest.mark.cluster
#: More entries than a coordinator keeps only in its log.
_ENOUGH = 620
_USER = getpass.getuser()


class Coordinator:
    """A coordinator on a directory. One client makes directories, each in its own entry."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.made: set[str] = set()
        self.start()

    def start(self) -> None:
        self.process, said = start_service("coordinator", f"--dir={self.directory}", "--port=0", "--node-port=0")
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{said['http_port']}", timeout=120)

    def make(self, count: int) -> None:
        for number in range(len(self.made), len(self.made) + count):
            answer = self._client.put(f"/webhdfs/v1/d-{number}?op=MKDIRS&user.name={_USER}")
            assert answer.status_code == 200, answer.text
            self.made.add(f"d-{number}")

    def names(self) -> set[str]:
        listed = self._client.get(f"/webhdfs/v1/?op=LISTSTATUS&user.name={_USER}").json()
        return {entry["pathSuffix"] for entry in listed["FileStatuses"]["FileStatus"]}

    def memory_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def image_process(self) -> int | None:
        """Return the id of the process that writes the image."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for child in children:
            try:
                command = Path(f"/proc/{child}/cmdline").read_bytes()
            except OSError:
                continue
            if b"image_process" in command:
                return int(child)
        return None

    def image_has_all(self) -> bool:
        """Return whether the image, read by SQLite alone, has every new name."""
        (path,) = self.directory.glob("metadata.sqlite")
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as image:
            return {name for (name,) in image.execute("SELECT name FROM entry")} >= self.made

    def stop(self, number: int) -> None:
        self._client.close()
        self.process.send_signal(number)
        self.process.wait(60)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    made = Coordinator(tmp_path / "coordinator")
    yield made
    if made.process.poll() is None:
        made.stop(signal.SIGTERM)


@pytest.mark.evidence("answers-survive-kill")
def test_image_process_that_is_killed_comes_back_and_no_name_is_lost(coordinator: Coordinator) -> None:
    coordinator.make(_ENOUGH)
    wait_until(lambda: coordinator.image_process() is not None, "an image process")
    first = coordinator.image_process()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    coordinator.make(_ENOUGH)
    assert coordinator.names() >= coordinator.made
    wait_until(lambda: coordinator.image_process() not in (None, first), "another image process")
    wait_until(coordinator.image_has_all, "all names in the image")
    coordinator.make(20)
    coordinator.stop(signal.SIGKILL)
    coordinator.start()
    assert coordinator.names() >= coordinator.made


def test_image_process_that_is_stopped_holds_up_no_change_and_catches_up(coordinator: Coordinator) -> None:
    coordinator.make(_ENOUGH)
    wait_until(lambda: coordinator.image_process() is not None, "an image process")
    stopped = coordinator.image_process()
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    before = coordinator.memory_bytes()
    try:
        coordinator.make(2 * _ENOUGH)
        assert coordinator.names() >= coordinator.made
        assert not coordinator.image_has_all()
        grown = coordinator.memory_bytes() - before
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_until(coordinator.image_has_all, "all names in the image")
    assert coordinator.image_process() == stopped
    print(f"{grown / (2 * _ENOUGH):.0f} bytes a name")
    assert grown < 64 << 20
