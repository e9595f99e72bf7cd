"""Unfinished files over WebHDFS: visible as in HDFS for those who look, and one commit if nobody looks."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest
from support.waiting import wait_until

from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import FileNotFound
from peacefs.protocol.new_file import NewFile

from .conftest import DataSide, GatewayLimits, GatewayLinks, NameSide

MIB = 1 << 20
BEING_CREATED = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException"
EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"


@pytest.fixture
def path(request):
    """Return a file name for this test."""
    return f"/open/{request.node.name}"


def both_sides(tmp_path_factory, signer, pause_s):
    links = GatewayLinks()
    names = NameSide(tmp_path_factory.mktemp("names"), signer, links=links)
    with contextlib.closing(names), names.served:
        side = DataSide(
            "dn-1", tmp_path_factory.mktemp("data"), names, signer, GatewayLimits(upload_pause_s=pause_s)
        )
        with side.served:
            links.gateways["dn-1"] = side.served
            names.register("dn-1", side.server.address[1], side.port, side.process)
            yield side
        side.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory, signer) -> Iterator[DataSide]:
    """Yield a gateway that flushes no upload by itself: unfinished files are visible only on request."""
    yield from both_sides(tmp_path_factory, signer, 3600.0)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory, signer) -> Iterator[DataSide]:
    """Yield a gateway that shows and flushes each upload after a very short pause."""
    yield from both_sides(tmp_path_factory, signer, 0.05)


class Writing:
    """A CREATE or APPEND whose body is sent piece by piece, as Hadoop's client does."""

    def __init__(self, data, path, method="PUT", op="CREATE", **query):
        redirect = data.names.ask(method, path, op, **query)
        assert redirect.status == 307, redirect
        self.wire: socket.socket = data.served.connect()
        head = f"{method} {data.target(redirect)} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        self.wire.sendall(head.encode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.wire.close()

    def flush(self, piece):
        self.wire.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))

    def close(self):
        """Finish the body; return the answer."""
        self.wire.sendall(b"0\r\n\r\n")
        return self.answer()

    def answer(self):
        status, _, rest = self.wire.recv(65536).partition(b"\r\n")
        return int(status.split()[1]), rest


def status(data, path):
    return data.names.ask("GET", path, "GETFILESTATUS")


def length(data, path):
    return status(data, path).json["FileStatus"]["length"]


def commits(data):
    """Return the number of transactions so far."""
    return data.names.commit_now(lambda tx: tx.tx)


def test_created_file_is_seen_at_once_and_grows_with_what_is_flushed(data, path):
    with Writing(data, path) as writing:
        assert length(data, path) == 0
        assert data.read(path).body == b""
        writing.flush(b"one")
        wait_until(lambda: length(data, path) == 3, "what was flushed is not seen")
        writing.flush(b"two")
        wait_until(lambda: data.read(path).body == b"onetwo", "what was flushed cannot be read")
        assert writing.close()[0] == 201
    assert data.read(path).body == b"onetwo"


@pytest.mark.parametrize(
    ("method", "op", "query"),
    [
        ("PUT", "SETPERMISSION", {"permission": "600"}),
        ("PUT", "SETOWNER", {"owner": "ann"}),
        ("PUT", "SETTIMES", {"modificationtime": 5}),
        ("PUT", "SETREPLICATION", {"replication": 1}),
        ("PUT", "SETXATTR", {"xattr_name": "user.a", "xattr_value": "0x01", "flag": "CREATE"}),
        ("PUT", "MODIFYACLENTRIES", {"aclspec": "user:ann:rw-"}),
        ("GET", "GETACLSTATUS", {}),
        ("GET", "LISTXATTRS", {}),
        ("GET", "OPEN", {}),
        ("GET", "LISTSTATUS", {}),
        ("GET", "GETCONTENTSUMMARY", {}),
        ("GET", "GETFILEBLOCKLOCATIONS", {}),
        ("GET", "CHECKACCESS", {"fsaction": "r--"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_operation_on_a_file_that_is_being_written_finds_it(data, path, method, op, query):
    with Writing(data, path) as writing:
        answered = data.names.ask(method, path, op, **{key.replace("_", "."): v for key, v in query.items()})
        assert answered.status in (200, 307), answered
        writing.flush(b"text")
        assert writing.close()[0] == 201
    assert data.read(path).body == b"text"
    if op == "SETPERMISSION":
        assert status(data, path).json["FileStatus"]["permission"] == "600", "which the end of the file keeps"


def test_listing_of_the_directory_shows_what_is_being_written(data, path):
    with Writing(data, f"{path}/file") as writing:

        def listed():
            answer = data.names.ask("GET", path, "LISTSTATUS").json
            return [entry["pathSuffix"] for entry in answer.get("FileStatuses", {}).get("FileStatus", [])]

        # The head of the body may arrive a moment after the listing.
        wait_until(lambda: listed() == ["file"], "it is not listed")
        assert data.names.ask("GET", path, "GETCONTENTSUMMARY").json["ContentSummary"]["fileCount"] == 1
        assert writing.close()[0] == 201


def test_file_that_is_being_written_is_renamed_and_goes_on_there(data, path):
    with Writing(data, f"{path}/a") as writing:
        writing.flush(b"one")
        assert data.names.ask("PUT", f"{path}/a", "RENAME", destination=f"{path}/b").json["boolean"]
        assert data.names.ask("PUT", path, "RENAME", destination=f"{path}-2").json["boolean"]
        writing.flush(b"two")
        assert writing.close()[0] == 201
    assert data.read(f"{path}-2/b").body == b"onetwo"
    assert status(data, f"{path}/a").status == 404


def test_file_that_is_deleted_while_it_is_written_stays_away_and_its_writer_is_told(data, path):
    with Writing(data, f"{path}/file") as writing:
        writing.flush(b"one")
        assert status(data, f"{path}/file").status == 200
        assert data.names.ask("DELETE", path, "DELETE", recursive="true").status == 200
        assert status(data, path).status == 404
        code, rest = writing.close()
    assert code == 404 and b"java.io.FileNotFoundException" in rest
    assert status(data, f"{path}/file").status == 404


def test_file_that_is_replaced_by_a_restore_while_it_is_written_is_gone_and_its_writer_is_told(data, path):
    data.names.ask("PUT", path, "MKDIRS")
    assert data.names.ask("PUT", path, "ALLOWSNAPSHOT", user_name="hdfs").status == 200
    data.names.ask("PUT", path, "CREATESNAPSHOT", snapshotname="before")
    with Writing(data, f"{path}/file") as writing:
        assert length(data, f"{path}/file") == 0
        data.names.served.run(data.names.files.snapshots.restore(path, "hdfs", "before"))
        assert data.names.ask("GET", path, "LISTSTATUS").json["FileStatuses"]["FileStatus"] == []
        writing.flush(b"late")
        assert writing.close()[0] == 404
    assert status(data, f"{path}/file").status == 404


def test_snapshot_shows_what_was_there_of_a_file_that_is_being_written(data, path):
    data.names.ask("PUT", path, "MKDIRS")
    data.names.ask("PUT", path, "ALLOWSNAPSHOT", user_name="hdfs")
    with Writing(data, f"{path}/file") as writing:
        writing.flush(b"one")
        wait_until(lambda: length(data, f"{path}/file") == 3, "what was flushed is not seen")
        data.names.ask("PUT", path, "CREATESNAPSHOT", snapshotname="s")
        writing.flush(b"two")
        assert writing.close()[0] == 201
    assert data.read(f"{path}/.snapshot/s/file").body == b"one"
    assert data.read(f"{path}/file").body == b"onetwo"


def test_second_creator_is_told_that_somebody_writes_the_file(data, path):
    with Writing(data, path) as first:
        code, kind, message = data.names.ask("PUT", path, "CREATE").error
        assert (code, kind) == (403, BEING_CREATED)
        assert message.startswith(f"Failed to CREATE_FILE {path} for dr.who because this file lease is currently ")
        first.flush(b"first")
        assert first.close()[0] == 201
    assert data.names.ask("PUT", path, "CREATE").error[1] == EXISTS, "when it is closed it is simply there"
    assert data.read(path).body == b"first"


def test_second_appender_is_told_that_somebody_writes_the_file(data, path):
    data.write(path, b"0")
    with Writing(data, path, "POST", "APPEND") as first:
        wait_until(lambda: data.names.ask("POST", path, "APPEND").status == 403, "nobody has the lease")
        assert data.names.ask("POST", path, "APPEND").error[1] == BEING_CREATED
        first.flush(b"1")
        assert first.close()[0] == 200
    with Writing(data, path, "POST", "APPEND") as second:
        second.flush(b"2")
        assert second.close()[0] == 200
    assert data.read(path).body == b"012"


def test_client_that_creates_again_what_it_could_not_send_does_not_fight_with_itself(data, path):
    """The first datanode did not answer, so the client asks for another, and nothing identifies the retry."""
    first = data.names.ask("PUT", path, "CREATE")
    assert first.status == 307
    again = data.names.ask("PUT", path, "CREATE")
    assert again.status == 307, "no body has come for the first"
    assert data.follow("PUT", again, b"x").status == 201
    assert data.read(path).body == b"x"


def test_create_whose_body_never_comes_leaves_nothing(data, path):
    assert data.names.ask("PUT", f"{path}/file", "CREATE").status == 307
    assert status(data, f"{path}/file").status == 404
    began_s = time.monotonic()
    for _ in range(5):
        assert data.names.ask("GET", path, "LISTSTATUS").status == 404
    assert time.monotonic() - began_s < 60, "it was waited for once"
    assert data.names.ask("PUT", f"{path}/file", "MKDIRS").json["boolean"]


def test_file_that_replaces_another_does_so_at_its_end_at_once(data, path):
    data.write(path, b"before")
    with Writing(data, path, overwrite="true") as writing:
        writing.flush(b"after")
        assert data.read(path).body == b"before"
        assert length(data, path) == 6
        assert writing.close()[0] == 201
    assert data.read(path).body == b"after"


def test_file_that_another_was_faster_to_write_is_not_replaced_by_a_part(data, path):
    with Writing(data, path, overwrite="true") as writing:
        writing.flush(b"part")
        publish_elsewhere(data, path)
        assert data.read(path).body == b""
        writing.flush(b" and whole")
        assert writing.close()[0] == 201
    assert data.read(path).body == b"part and whole"


def publish_elsewhere(data, path):
    """Publish an empty file of this name as our own client does, which does not look for unfinished files."""
    file = NewFile(path=path, user="ann", replication=1, block_bytes=MIB)
    data.names.commit_now(lambda tx: namespace.complete_file(tx, file, [], 1))


def test_small_file_that_nobody_looks_for_costs_one_commit_and_no_question(data, path):
    links = data.names.links
    asked, before = len(links.asked), commits(data)
    assert data.write(path, b"small").status == 201
    assert commits(data) - before == 2, "that of the file, and that of the question"
    assert len(links.asked) == asked


def test_writer_that_pauses_has_its_file_shown_and_flushed_by_itself(hasty, path):
    data = hasty
    with Writing(data, path) as writing:
        wait_until(lambda: recorded_length(data, path) == 0, "the name has not appeared")
        for number in range(1, 6):
            writing.flush(b"event\n")
            wait_until(lambda number=number: recorded_length(data, path) == 6 * number, "it is not flushed")
        assert writing.close()[0] == 201
    assert data.read(path).body == b"event\n" * 5


def recorded_length(data, path):
    """Return the committed length, or None if there is no file."""
    try:
        return data.names.commit_now(lambda tx: namespace.status(tx, parse_path(path)).length)
    except FileNotFound:
        return None


@pytest.mark.parametrize("size", [10, 3 * MIB], ids=["small", "large"])
def test_writer_that_dies_leaves_what_came_of_a_file_that_was_shown_and_others_go_on(hasty, path, size):
    data = hasty
    content = bytes(range(250)) * (size // 250 + 1)
    with Writing(data, path) as writing:
        wait_until(lambda: recorded_length(data, path) == 0, "the name has not appeared")
        for at in range(0, len(content), 50_000):
            writing.flush(content[at : at + 50_000])
    wait_until(lambda: recorded_length(data, path) == len(content), "what was sent has not survived")
    assert data.read(path).body == content

    def appended():
        redirect = data.names.ask("POST", path, "APPEND")
        return redirect.status == 307 and data.follow("POST", redirect, b"!").status == 200

    wait_until(appended, "the lease is still held")
    assert data.read(path).body == content + b"!"


def test_bursts_of_any_size_between_pauses_are_all_there_in_order(hasty, path):
    data = hasty
    sizes = (1, 2 * MIB, 10, 5 * MIB + 3, 700_000, 3)
    content = b""
    with Writing(data, path, blocksize=MIB) as writing:
        for number, size in enumerate(sizes):
            burst = bytes([number + 1]) * size
            for at in range(0, size, 60_000):
                writing.flush(burst[at : at + 60_000])
            content += burst
            so_far = len(content)
            wait_until(lambda so_far=so_far: recorded_length(data, path) == so_far, "a burst was not flushed")
        assert data.read(path).body == content
        assert writing.close()[0] == 201
    assert data.read(path).body == content


def test_long_body_without_a_pause_is_flushed_where_its_chunks_end(data, path, monkeypatch):
    monkeypatch.setattr("peacefs.datanode.gateway.flush_times.upload_age_s_max", 0.0)
    content = bytes(range(250)) * (3 * MIB // 250 + 4000)
    with Writing(data, path, blocksize=MIB) as writing:
        assert length(data, path) == 0
        for at in range(0, len(content), 60_000):
            writing.flush(content[at : at + 60_000])
        # The first two chunks form one part, which exceeds the first buffer.
        wait_until(lambda: (recorded_length(data, path) or 0) >= 2 * MIB, "no whole chunk is flushed")
        assert data.read(path, length=2 * MIB).body == content[: 2 * MIB]
        assert writing.close()[0] == 201
    assert data.read(path).body == content
    located = data.names.ask("GET", path, "GETFILEBLOCKLOCATIONS").json["BlockLocations"]["BlockLocation"]
    lengths = [block["length"] for block in located]
    # The rest forms another such part, unless data arrives so slowly that its age causes earlier flushes.
    assert (lengths[:2], sum(lengths)) == ([MIB, MIB], len(content))


@pytest.mark.parametrize("overwrite", [False, True], ids=["without overwrite", "with overwrite"])
@pytest.mark.parametrize("first", ["goes on", "is done", "broke off"])
def test_body_sent_again_to_the_url_of_a_file_that_is_shown_ends_as_in_hdfs(hasty, path, first, overwrite):
    redirect = hasty.names.ask("PUT", path, "CREATE", overwrite=str(overwrite).lower())
    with hasty.served.connect() as wire:
        wire.sendall(
            f"PUT {hasty.target(redirect)} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        )
        wire.sendall(b"4\r\nbody\r\n")
        wait_until(lambda: status(hasty, path).status == 200, "it is shown")
        if first == "is done":
            wire.sendall(b"0\r\n\r\n")
            assert wire.recv(65536).startswith(b"HTTP/1.1 201 ")
        elif first == "broke off":
            wire.close()
            appends = lambda: hasty.names.ask("POST", path, "APPEND").status == 307  # noqa: E731
            wait_until(appends, "the gateway has given the lease back")
        again = hasty.follow("PUT", redirect, b"another body")
        if overwrite:
            assert again.status == 201
            assert hasty.read(path).body == b"another body"
        else:
            assert again.status == 403
            told = again.json["RemoteException"]["javaClassName"]
            assert told == (BEING_CREATED if first == "goes on" else EXISTS)
            assert hasty.read(path).body == b"body"
        if first == "goes on" and not overwrite:
            wire.sendall(b"0\r\n\r\n")
            assert wire.recv(65536).startswith(b"HTTP/1.1 201 ")
            assert hasty.read(path).body == b"body"
