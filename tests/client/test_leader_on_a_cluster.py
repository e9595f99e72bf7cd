"""Lists of coordinators on a real cluster: dead ones beside the leader, and broken connections to it."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest
from support.waiting import wait_until
from typer.testing import CliRunner

from peacefs.client.command_line.application import application
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import PeerUnreachable
from peacefs.protocol.limits import MIB

fsspec = pytest.importorskip("fsspec")

pytestmark = pytest.mark.cluster


@pytest.fixture
def dead() -> Iterator[str]:
    """Yield an address that nobody listens on, and that nobody else can take meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


class Way:
    """A relay to a coordinator with an address of its own. `break_off` breaks it and its connections."""

    def __init__(self, host: str, port: int) -> None:
        self._goal = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._goal)
                self.connections += 1
                self._sockets += [near, far]
                for ends in ((near, far), (far, near)):
                    thread = threading.Thread(target=self._pass, args=ends)
                    self._threads.append(thread)
                    thread.start()

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                sink.sendall(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def break_off(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()


@pytest.fixture
def ways(shared_cluster: LocalCluster) -> Iterator[list[Way]]:
    """Yield two relays to the leader, with two addresses."""
    made = [Way(shared_cluster.address.host, shared_cluster.address.port) for _ in range(2)]
    yield made
    for way in made:
        way.break_off()


@pytest.mark.parametrize("dead_first", [True, False])
def test_client_finds_the_coordinator_that_leads_among_dead_ones(
    shared_cluster: LocalCluster, dead: str, home: str, dead_first: bool
) -> None:
    addresses = [dead, shared_cluster.address.netloc]
    address = "http://" + ",".join(addresses if dead_first else reversed(addresses))
    large = os.urandom(3 * MIB)
    with PeaceFileSystem(address, "alice") as files:
        files.write(f"{home}/small", b"small")
        files.write(f"{home}/large", large)
        assert files.read(f"{home}/small") == b"small"
        assert files.read(f"{home}/large") == large
        assert [entry.name for entry in files.list(home)] == ["large", "small"]
        assert files.cluster_status()["datanodes"]
    with PeaceFileSystem(f"http://{dead},{dead[:-1]}", "alice") as files, pytest.raises(PeerUnreachable):
        files.status(home)


def test_command_and_fsspec_take_lists_of_coordinators(
    shared_cluster: LocalCluster, dead: str, home: str, environment: dict[str, str]
) -> None:
    both = f"{dead},{shared_cluster.address.netloc}"
    run = CliRunner()
    put = run.invoke(
        application, ["put", "-c", f"http://{both}", "-", f"{home}/file"], input=b"12", env=environment
    )
    assert put.exit_code == 0, put.output
    shown = run.invoke(application, ["cat", f"webhdfs://{both}{home}/file"], env=environment)
    assert (shown.exit_code, shown.stdout) == (0, "12")
    with fsspec.open(f"peace://{both}{home}/other", "wb", user="alice") as sink:
        sink.write(b"345")
    fs, path = fsspec.core.url_to_fs(f"peace://{both}{home}/other", user="alice")
    assert fs.cat_file(path) == b"345"
    assert fs.unstrip_protocol(path) == f"peace://{both}{home}/other"
    fs.files.close()
    type(fs).clear_instance_cache()


def test_writer_goes_on_over_the_next_address_when_the_way_to_the_leader_breaks(
    ways: list[Way], home: str
) -> None:
    first, second = ways
    data = [os.urandom(3 * MIB) for _ in range(8)]
    with PeaceFileSystem(f"http://{first.address},{second.address}", "alice") as files:
        with (
            files.open_for_writing(f"{home}/large", block_bytes=4 * MIB) as sink,
            files.open_for_writing(f"{home}/log") as log,
        ):
            log.write(b"before ")
            log.hflush()
            for number, piece in enumerate(data):
                sink.write(piece)
                if number == 3:
                    first.break_off()
            log.write(b"after")
        for number in range(20):
            files.write(f"{home}/small-{number}", b"%d" % number)
        assert files.read(f"{home}/large") == b"".join(data)
        assert files.read(f"{home}/log") == b"before after"
        assert len(files.list(home)) == 22
        assert files.cluster_status()["datanodes"]
    assert first.connections and second.connections


def test_changes_are_done_once_however_often_the_way_breaks(shared_cluster: LocalCluster, home: str) -> None:
    """Answers are lost at random; each change is sent again over the other relay with its id."""
    host, port = shared_cluster.address.host, shared_cluster.address.port
    ways = [Way(host, port) for _ in range(6)]
    done = threading.Event()

    def break_all_but_the_last() -> None:
        for number, way in enumerate(ways[:-1]):
            wait_until(lambda way=way: way.connections > 0 or done.is_set(), "the way is used")
            way.break_off()
            print("broke", number)

    breaker = threading.Thread(target=break_all_but_the_last)
    breaker.start()
    try:
        with PeaceFileSystem("http://" + ",".join(way.address for way in ways), "alice") as files:
            for number in range(400):
                files.mkdirs(f"{home}/{number}")
                # Done twice, it would fail, because there would be nothing to rename.
                files.rename(f"{home}/{number}", f"{home}/renamed-{number}")
                if ways[-1].connections and number > 100:
                    break
            names = [entry.name for entry in files.list(home)]
    finally:
        done.set()
        breaker.join()
        ways[-1].break_off()
    assert sorted(names) == sorted(f"renamed-{each}" for each in range(number + 1))
