"""Answers are lost and the coordinator is killed; the same requests are sent again."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator

import httpx
import pytest

from peacefs.client.control.addresses import parse_address
from peacefs.client.control.names import NameApi
from peacefs.client.control.retry import RetryPolicy, Unanswered
from peacefs.client.control.rpc import ControlRpc
from peacefs.client.file_objects import FileSink
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.snapshots import Snapshots
from peacefs.client.transfer.small_writes import SmallWrites
from peacefs.client.transfer.write_grants import GrantClient
from peacefs.protocol.errors import FileNotFound, PeerUnreachable
from peacefs.protocol.handshake import Identity
from peacefs.protocol.ids import new_request_id
from peacefs.protocol.limits import chunk_bytes_max
from peacefs.protocol.messages import (
    Completed,
    CompleteFile,
    ConcatFiles,
    CreateFile,
    Message,
    NameChange,
    PublishFile,
)
from peacefs.protocol.new_file import NewFile
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("replays"), datanodes=1, port=0) as running:
        yield running


class WatchedCalls(ControlRpc):
    """Records changes and completions with their answers, and loses an answer on request."""

    def __init__(self, address: str, connections: ConnectionPool) -> None:
        super().__init__(parse_address(address), connections, RetryPolicy())
        self.carried: list[tuple[Message, Message]] = []
        self.losing: Callable[[], None] | None = None

    def _attempt(self, message: Message, timeout_s: float) -> Message:
        reply = super()._attempt(message, timeout_s)
        is_empty = isinstance(message, CreateFile) and message.is_empty
        if is_empty or isinstance(message, NameChange | CompleteFile | PublishFile):
            self.carried.append((message, reply))
            if self.losing is not None:
                meanwhile, self.losing = self.losing, None
                meanwhile()
                raise Unanswered(PeerUnreachable("the answer was lost"))
        return reply


class Client:
    """Our client with watched calls, and a file system that shows the result."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        user = getpass.getuser()
        self._connections = ConnectionPool(Identity("", "client", "lossy", None))
        self.calls = WatchedCalls(cluster.http_address, self._connections)
        self.api = NameApi(self.calls, user)
        self.driver = ThreadDriver(self._connections, self.calls.call)
        self.small = SmallWrites(GrantClient("test", pushed=False))
        self.files = PeaceFileSystem(cluster.http_address, user)

    def kill_coordinator(self) -> None:
        self._cluster.coordinator.kill()
        self._cluster.restart(self._cluster.coordinator)

    def write(self, path: str, data: bytes) -> None:
        request = NewFile(path=path, user=self.api.user, replication=1, request_id=new_request_id())
        created = self.calls.create(CreateFile(request))
        with FileSink(self.driver, created, chunk_bytes_max, "holder", GrantClient("test", pushed=False)) as sink:
            sink.write(data)

    def write_small(self, path: str, data: bytes) -> None:
        request = NewFile(path=path, user=self.api.user, replication=1, block_bytes=chunk_bytes_max)
        asked = self.driver.run(self.small.publish_at_once(request, data))
        if asked is not None:
            self.driver.run(self.small.publish_created(asked, self.calls.create(asked), data))

    def seen(self, path: str) -> dict[str, tuple[int, str, bytes | None]]:
        return {
            entry.path: (
                entry.permission,
                entry.owner,
                None if entry.is_directory else self.files.read(entry.path),
            )
            for _, directories, files in self.files.walk(path)
            for entry in [*directories, *files]
        }

    def close(self) -> None:
        self.files.close()
        self._connections.close_all()


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    opened = Client(cluster)
    yield opened
    opened.close()


@pytest.mark.evidence("answers-survive-kill", "messages-lost")
def test_every_change_asked_again_after_kill_9_gets_its_first_answer_and_changes_nothing(client: Client) -> None:
    api, files = client.api, client.files
    api.mkdirs("/r/made")
    for name in ("a", "b", "c", "d", "e"):
        client.write(f"/r/{name}", name.encode() * 3)
    api.rename("/r/a", "/r/moved")
    assert api.delete("/r/b")
    assert not api.delete("/r/never")
    api.set_permission("/r/c", 0o600)
    api.set_owner("/r/c", "bob", None)
    api.concat("/r/c", ["/r/d"])
    api.truncate("/r/e", 1)
    snapshots = Snapshots(api, lambda _path, _older, _newer: [])
    snapshots.allow("/r")
    path = snapshots.create("/r", None)
    snapshots.rename("/r", path.rpartition("/")[2], "s")
    client.write("/r/late", b"late")
    snapshots.restore("/r", "s")
    snapshots.delete("/r", "s")
    snapshots.disallow("/r")

    # A request that was executed again would change this.
    files.delete("/r/made")
    for name in ("a", "b", "d", "never", "late"):
        files.write(f"/r/{name}", b"younger", replication=1)
    files.set_permission("/r/c", 0o640)
    files.set_owner("/r/c", "carol")
    files.write("/r/e", b"longer", overwrite=True, replication=1)
    before = client.seen("/r")
    client.kill_coordinator()
    carried = list(client.calls.carried)
    kinds = [isinstance(message, NameChange) for message, _ in carried]
    assert (kinds.count(True), kinds.count(False)) == (14, 6)
    for message, reply in carried:
        assert client.calls.call(message) == reply, message
    assert client.seen("/r") == before


def test_the_client_asks_again_by_itself_over_a_kill_and_a_restart(client: Client) -> None:
    client.write("/s/a", b"1")
    client.calls.losing = client.kill_coordinator
    assert client.api.delete("/s/a"), "the answer is the first one's: there was something to delete"
    with pytest.raises(FileNotFound):
        client.files.status("/s/a")

    client.calls.losing = client.kill_coordinator
    client.write("/s/b", b"2")
    assert client.files.read("/s/b") == b"2"
    assert client.calls.carried[-1] == client.calls.carried[-2], "the completion was asked twice"
    client.calls.losing = client.kill_coordinator
    client.api.concat("/s/b", [client.files.write("/s/c", b"3", replication=1) or "/s/c"])
    assert client.files.read("/s/b") == b"23"
    (first, _), (again, _) = client.calls.carried[-2:]
    assert isinstance(first, ConcatFiles) and first == again, "it was asked twice"


@pytest.mark.evidence("answers-survive-kill")
def test_a_file_that_is_published_at_once_is_published_once_over_a_kill_and_a_restart(client: Client) -> None:
    for name in ("a", "b"):
        client.write_small(f"/u/{name}", b"before")
    client.calls.losing = client.kill_coordinator
    client.write_small("/u/c", b"at once")
    (first, answer), (again, answer_again) = client.calls.carried[-2:]
    assert isinstance(first, PublishFile) and first == again, "it was asked twice"
    assert isinstance(answer, Completed) and isinstance(answer_again, Completed)
    assert answer.length == answer_again.length == len(b"at once")
    assert client.files.read("/u/c") == b"at once"
    client.files.delete("/u/c")
    client.calls.call(first)
    assert not client.files.exists("/u/c"), "it was published, and deleted since"
    client.write_small("/u/d", b"and so on")
    assert client.files.read("/u/d") == b"and so on"


@pytest.mark.evidence("answers-survive-kill")
def test_empty_file_is_made_once_over_a_kill_and_a_restart(client: Client) -> None:
    request = NewFile(path="/v/empty", user=client.api.user, replication=1, request_id=new_request_id())
    client.calls.losing = client.kill_coordinator
    client.calls.create_empty(request)
    (first, answer), (again, answer_again) = client.calls.carried[-2:]
    assert first == again and answer == answer_again == Completed(0), "it was asked twice"
    assert client.files.read("/v/empty") == b""
    client.files.delete("/v/empty")
    client.calls.create_empty(request)
    assert not client.files.exists("/v/empty"), "it was made, and deleted since"


def test_a_stock_clients_rename_is_recognised_after_a_restart(client: Client) -> None:
    client.files.write("/t/.0.tmp", b"offsets", replication=1)
    query = f"op=RENAME&destination=/t/0&renameoptions=NONE&user.name={client.api.user}"
    url = f"{client.files.address}/webhdfs/v1/t/.0.tmp?{query}"
    assert httpx.put(url).status_code == 200
    client.kill_coordinator()
    assert httpx.put(url).status_code == 200
    assert client.files.read("/t/0") == b"offsets"
