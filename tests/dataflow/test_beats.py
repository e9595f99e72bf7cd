"""A node that is busy with one batch for long is not considered dead: a thread sends its heartbeats."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.dataflows import SCHEMA, input_rows
from support.waiting import PATIENCE_S, wait_until

from benchmarks.dataflows.dict_table import DictTable
from peacefs.dataflow import Query
from peacefs.dataflow.core.messages import NodeAlive
from peacefs.dataflow.hosts import run_events
from peacefs.dataflow.hosts.beats import Beats
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.membership import BEATS, Member, Membership
from peacefs.dataflow.hosts.wire import MessageReader, encode
from peacefs.dataflow.recovery.ring_settings import RingSettings
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.ring.arrangement import arrange
from peacefs.dataflow.ring.monitor import Monitor
from peacefs.dataflow.ring.node_context import NodeContext
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.peer_ring import PeerRing
from peacefs.protocol.errors import PeacefsError
from peacefs.runtime.connections import SocketConnection

_ALIVE = NodeAlive("node-1", "session")


class Listener:
    """A server that records what it receives, separately for each connection."""

    def __init__(self) -> None:
        self._membership = Membership(Member("node-2", "token"))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._server.getsockname())
        self.heard: list[list[Any]] = []
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._connections.append(connection)
            self.heard.append([])
            threading.Thread(target=self._read, args=(connection, self.heard[-1]), daemon=True).start()

    def _read(self, accepted: socket.socket, heard: list[Any]) -> None:
        reader = MessageReader({})
        connection = SocketConnection(accepted, "a node")
        try:
            heard.append(self._membership.accept(connection))
            stream = connection.hand_over()
            while data := accepted.recv(4096):
                heard += reader.feed(stream.open(data))
        except (OSError, PeacefsError):
            pass
        heard.append("end")

    def hang_up(self) -> None:
        for connection in self._connections:
            with suppress(OSError):  # the other end may have hung up
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        # A thread in accept() keeps the socket open until the socket is shut down.
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.hang_up()
        for connection in self._connections:
            connection.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    with closing(Listener()) as listener:
        yield listener


def beats(*, busy_s_max: float = 60.0) -> Beats:
    return Beats(Membership(Member("node-1", "token")), encode, _ALIVE, every_s=0.01, busy_s_max=busy_s_max)


def test_beats_go_on_while_the_node_is_busy(listener: Listener) -> None:
    with closing(beats()) as thread:
        thread.note({"node-2": listener.address})
        wait_until(lambda: listener.heard and len(listener.heard[0]) > 4, "beats")
        thread.note({})
        wait_until(lambda: listener.heard[0][-1] == "end", "the end of beats that nobody needs")
    assert (listener.heard[0][0].name, listener.heard[0][0].role) == ("node-1", BEATS)
    assert listener.heard[0][1:5] == 4 * [_ALIVE]


def test_beats_begin_again_where_the_connection_broke(listener: Listener) -> None:
    with closing(beats()) as thread:
        thread.note({"node-2": listener.address})
        wait_until(lambda: listener.heard and len(listener.heard[0]) > 1, "beats")
        listener.hang_up()
        wait_until(lambda: len(listener.heard) > 1 and len(listener.heard[1]) > 1, "another connection")
    assert listener.heard[1][0].name == "node-1"
    assert listener.heard[1][1] == _ALIVE


def test_beats_reach_others_while_one_is_not_there(listener: Listener) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = "{}:{}".format(*taken.getsockname())
    with closing(beats()) as thread:
        thread.note({"node-3": nobody, "node-2": listener.address})
        wait_until(lambda: listener.heard and len(listener.heard[0]) > 4, "beats")


def test_beats_end_when_a_node_does_not_come_round(listener: Listener) -> None:
    """The node hangs then, and others must take over."""
    with closing(beats(busy_s_max=0.5)) as thread:
        thread.note({"node-2": listener.address})
        wait_until(lambda: listener.heard and len(listener.heard[0]) > 1, "beats")
        noted_s = time.monotonic()
        wait_until(lambda: time.monotonic() > noted_s + 1.0, "a while without a round")
        before = len(listener.heard[0])
        wait_until(lambda: time.monotonic() > noted_s + 1.5, "a while longer")
        assert len(listener.heard[0]) == before
        thread.note({"node-2": listener.address})
        wait_until(lambda: len(listener.heard[0]) > before, "beats again")


def first_dead_s(monitor: Monitor, most_s: int) -> float | None:
    """Return the time when a node is found dead, or None."""
    return next((tenth / 10 for tenth in range(2, 10 * most_s) if monitor.find_dead(tenth / 10)), None)


@pytest.mark.parametrize("ended", [True, False])
def test_last_beat_of_a_process_that_has_ended_does_not_keep_it_alive(ended: bool) -> None:
    """A message arrives on another connection after one broke. The node may live unless its end is known."""
    members = arrange(["node-1", "node-2"], 1)
    monitor = Monitor(NodeContext("node-1", members, (), RingSettings(silence_s=60.0), DictTable), 0.0)
    assert monitor.find_dead(0.1) == []
    monitor.disconnected("node-2")
    if ended:
        monitor.process_ended("node-2")
    monitor.heard("node-2")
    found_s = first_dead_s(monitor, 70)
    assert found_s is not None
    assert found_s < 1.0 if ended else found_s > 59.0


#: The time that a node may be silent is shorter than the time for one batch.
_SILENCE_S, _BUSY_S = 1.0, 3.0


@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "technique", [ActiveStandby(), PeerRing(silence_s=_SILENCE_S)], ids=lambda technique: technique.name
)
def test_busy_node_is_not_taken_for_dead(technique: Technique, tmp_path: Path) -> None:
    """If a function takes longer for a batch than a node may be silent, there is no takeover."""

    def slow(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        if 0 in rows.column("value").to_pylist():
            time.sleep(_BUSY_S)
        return rows

    query = Query("slow")
    rows = query.source("in", SCHEMA, time="at")
    rows.process(slow, state={"key": "string", "count": "int64"}, key="key").sink("out")
    lost: list[str] = []
    taken = 0

    def take(batch: pa.RecordBatch) -> None:
        nonlocal taken
        taken += batch.num_rows

    def observe(_: float, event: run_events.RunEvent) -> None:
        if isinstance(event, run_events.NodeLost):
            lost.append(event.node)

    made = input_rows(1, batches=4, size=4)
    host = LocalProcesses(2, DirectoryCheckpoints(tmp_path), node_timeout_s=_SILENCE_S)
    options = RunOptions(observer=observe)
    with host.start(query.network(), technique, {"in": made}, {"out": take}, options) as run:
        run.wait(PATIENCE_S)
        assert lost == []
    assert taken == 16
