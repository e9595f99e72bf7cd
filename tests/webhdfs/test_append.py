"""APPEND, TRUNCATE and CONCAT over HTTP: one writer at a time, whole or not at all, with HDFS's messages."""

from __future__ import annotations

import os

import pytest
from support.waiting import wait_until

from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import LeaseExpired
from peacefs.protocol.messages import AbandonLease, CompleteFile, RenewLease, TakeLease
from peacefs.protocol.tokens import FileAppend

MIB = 1 << 20
ACCESS = "org.apache.hadoop.security.AccessControlException"
BEING_CREATED = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException"
EXPIRED = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException"
EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"
ILLEGAL = "org.apache.hadoop.HadoopIllegalArgumentException"
NOT_FOUND = "java.io.FileNotFoundException"


@pytest.fixture
def path(request):
    """Return a file name for this test."""
    return f"/append/{request.node.name}"


def append(data, path, content):
    """Send an APPEND in two steps. Return the first answer if it is not a redirect."""
    redirect = data.names.ask("POST", path, "APPEND")
    if redirect.status != 307:
        return redirect
    return data.follow("POST", redirect, content)


def length(data, path):
    return data.names.ask("GET", path, "GETFILESTATUS").json["FileStatus"]["length"]


def lease_of(data, signer, path, holder):
    """Take a lease as the gateway does."""
    token = signer.sign(FileAppend(2e9, path, holder, MIB, 1))
    return data.names.call(TakeLease(token, holder), 5.0)


def upload_head(data, path, length):
    target = data.target(data.names.ask("POST", path, "APPEND"))
    return f"POST {target} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n".encode()


@pytest.mark.parametrize("size", [0, 1, 300_000, MIB, 5 * MIB + 17], ids=str)
def test_appended_bytes_are_read_after_those_before(data, path, size):
    before, content = os.urandom(700_000), os.urandom(size)
    data.write(path, before, blocksize=2 * MIB, replication=1)
    appended = append(data, path, content)
    assert appended.headers.pop("x-request-id")
    assert (appended.status, appended.body, appended.headers) == (200, b"", {"content-length": "0"})
    assert data.read(path).body == before + content
    assert data.read(path, offset=699_999, length=3).body == (before + content)[699_999:700_002]


def test_one_url_appends_as_often_as_it_is_used(data, path):
    data.write(path, b"")
    redirect = data.names.ask("POST", path, "APPEND")
    for piece in (b"a", bytes(2 * MIB), b"c"):
        assert data.follow("POST", redirect, piece).status == 200
    assert data.read(path).body == b"a" + bytes(2 * MIB) + b"c"


def test_fewer_replicas_than_the_file_has_are_said(data, path):
    data.write(path, b"x", replication=3)
    assert append(data, path, b"y").headers["x-peacefs-replicas"] == "1/3"


def test_only_a_file_that_is_there_can_be_appended_to(data, path):
    data.names.ask("PUT", path + "-dir", "MKDIRS")
    refused = data.names.ask("POST", path + "-dir", "APPEND")
    directory = f"{path}-dir"
    words = f"Cannot append to directory {directory}; already exists as a directory."
    assert refused.error == (403, EXISTS, words)
    refused = data.names.ask("POST", path, "APPEND")
    assert refused.error == (404, NOT_FOUND, f"File does not exist: {path}")
    data.write(path, b"x")
    redirect = data.names.ask("POST", path, "APPEND")
    data.names.ask("DELETE", path, "DELETE")
    for content in (b"y", bytes(3 * MIB)):
        assert data.follow("POST", redirect, content).error[:2] == (404, NOT_FOUND)


def test_a_file_that_is_being_extended_is_left_alone(data, path, signer):
    data.write(path, b"12345", replication=1)
    data.write(path + "-2", b"67890", replication=1)
    leased = lease_of(data, signer, path, "ann")
    assert (leased.length, leased.replication) == (5, 1)
    owned = "because this file lease is currently owned by ann"
    status, kind, message = data.names.ask("POST", path, "APPEND").error
    assert (status, kind) == (403, BEING_CREATED)
    assert message.startswith(f"Failed to APPEND_FILE {path} for dr.who ") and message.endswith(owned)
    truncated = data.names.ask("POST", path, "TRUNCATE", newlength=1)
    assert truncated.error[:2] == (403, BEING_CREATED) and truncated.error[2].endswith(owned)
    for target, source in ((path, path + "-2"), (path + "-2", path)):
        concatenated = data.names.ask("POST", target, "CONCAT", sources=source)
        assert concatenated.error[:2] == (403, BEING_CREATED) and concatenated.error[2].endswith(owned)
    assert length(data, path) == 5
    data.names.call(AbandonLease(leased.token), 5.0)
    assert append(data, path, b"x").status == 200
    assert data.read(path).body == b"12345x"


def test_a_holder_that_asks_again_gets_the_lease_again_and_only_the_last_counts(data, path, signer):
    data.write(path, b"12345")
    first, second = (lease_of(data, signer, path, "ann") for _ in range(2))
    with pytest.raises(LeaseExpired):
        data.names.call(CompleteFile(first.token, []), 5.0)
    data.names.call(RenewLease(second.token), 5.0)
    data.names.call(CompleteFile(second.token, []), 5.0)
    with pytest.raises(LeaseExpired):
        data.names.call(RenewLease(second.token), 5.0)


def test_an_upload_whose_file_was_deleted_is_told(data, path):
    data.write(path, b"x")
    with data.served.connect() as wire:
        wire.sendall(upload_head(data, path, 2 * MIB + 5) + bytes(2 * MIB))
        wait_until(data.staged, "the upload has begun")
        data.names.ask("DELETE", path, "DELETE")
        wire.sendall(b"12345")
        answer = wire.recv(65536)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert NOT_FOUND.encode() in answer and b"File does not exist" in answer


def test_an_upload_whose_file_was_renamed_goes_on_there(data, path):
    data.write(path, b"x")
    with data.served.connect() as wire:
        wire.sendall(upload_head(data, path, 2 * MIB + 5) + bytes(2 * MIB))
        wait_until(data.staged, "the upload has begun")
        data.names.ask("PUT", path, "RENAME", destination=path + "-2")
        wire.sendall(b"12345")
        assert wire.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert length(data, path + "-2") == 2 * MIB + 6


@pytest.mark.parametrize("sent", [10, 3 * MIB], ids=["small", "large"])
def test_a_client_that_hangs_up_in_the_middle_has_added_nothing_and_is_in_nobodys_way(data, path, sent):
    data.write(path, b"x")
    with data.served.connect() as wire:
        wire.sendall(upload_head(data, path, 4 * MIB))
        wire.sendall(bytes(sent))
    wait_until(lambda: data.served.connections() == 0, "the connection is still there")
    wait_until(lambda: append(data, path, b"y").status == 200, "the lease is still held")
    assert data.read(path).body == b"xy"


def test_a_token_that_is_forged_or_of_another_kind_appends_nothing(data, path):
    data.write(path, b"x")
    target = data.target(data.names.ask("POST", path, "APPEND"))
    token = target.partition("token=")[2].partition("&")[0]
    create = data.target(data.names.ask("PUT", path + "-2", "CREATE"))
    write_token = create.partition("token=")[2].partition("&")[0]
    for other in (token[:-8] + "AAAAAAAA", write_token, "x"):
        assert data.served.request("POST", target.replace(token, other), b"y").error[:2] == (403, ACCESS)
    assert length(data, path) == 1


def test_a_file_is_truncated_and_concatenated(data, path):
    content = os.urandom(3 * MIB)
    data.write(path, content, blocksize=MIB)
    data.write(path + "-2", b"second", blocksize=MIB)
    data.write(path + "-3", b"third", blocksize=MIB)
    cut = 2 * MIB - 12_345
    truncated = data.names.ask("POST", path, "TRUNCATE", newlength=cut)
    assert (truncated.status, truncated.json) == (200, {"boolean": True})
    assert data.read(path).body == content[:cut]
    done = data.names.ask("POST", path, "CONCAT", sources=f"{path}-3,{path}-2")
    assert (done.status, done.body) == (200, b"")
    assert data.read(path).body == content[:cut] + b"thirdsecond"
    assert data.names.ask("GET", path + "-2", "GETFILESTATUS").status == 404


@pytest.mark.parametrize(
    ("op", "query", "status", "kind", "words"),
    [
        ("TRUNCATE", {"newlength": 6}, 400, ILLEGAL, "Cannot truncate to a larger file size. Current size: 5"),
        ("TRUNCATE", {}, 400, "java.lang.IllegalArgumentException", '"newlength": it is missing'),
        ("TRUNCATE", {"newlength": -1}, 400, "java.lang.IllegalArgumentException", "newlength = -1 < 0"),
        ("CONCAT", {}, 400, "java.lang.IllegalArgumentException", "No sources given"),
        ("CONCAT", {"sources": "/append/itself"}, 400, ILLEGAL, "is the same with the target file"),
        ("CONCAT", {"sources": "/append/none"}, 404, NOT_FOUND, "File does not exist: /append/none"),
        ("CONCAT", {"sources": "relative"}, 400, "java.lang.IllegalArgumentException", "not absolute"),
    ],
)
def test_truncate_and_concat_are_refused_in_hdfss_words(data, op, query, status, kind, words):
    data.write("/append/itself", b"12345", overwrite="true")
    answered, java_class, message = data.names.ask("POST", "/append/itself", op, **query).error
    assert (answered, java_class) == (status, kind)
    assert words in message


def test_an_append_is_asked_with_post_and_without_a_datanode_there_is_none(data, path):
    data.write(path, b"x")
    assert "APPEND is asked with POST" in data.names.ask("PUT", path, "APPEND").error[2]
    refused = data.names.ask("POST", path, "APPEND", excludedatanodes=f"127.0.0.1:{data.port}")
    assert refused.error[:2] == (403, "java.io.IOException")
    direct = data.names.ask("POST", path, "APPEND", noredirect="true")
    assert direct.status == 200 and "op=APPEND" in direct.json["Location"]


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.evidence("visible-is-readable")
def test_reader_sees_one_state_of_a_file_that_is_cut_while_it_is_opened(data, path, monkeypatch, blocks):
    content = os.urandom(blocks * MIB)
    data.write(path, content, blocksize=MIB)
    layout = namespace.layout

    def cut_behind_its_back(reader, inode):
        """Truncate the file right after its layout was read, before anything else can run."""
        found = layout(reader, inode)
        data.names.commit_now(lambda tx: namespace.truncate(tx, parse_path(path), 2, 0))
        return found

    with monkeypatch.context() as during_open:
        during_open.setattr(namespace, "layout", cut_behind_its_back)
        redirect = data.names.ask("GET", path, "OPEN")
    read = data.follow("GET", redirect)
    assert (read.headers["content-length"], read.body) == (f"{blocks * MIB}", content)
    assert data.read(path).body == content[:2]
