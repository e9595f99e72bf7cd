"""Files through a datanode's gateway: whole, in ranges, interrupted, and never half written."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlsplit

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import wait_until

from peacefs.client.transfer.hdfs_checksum import FileChecksum
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.tokens import FileRead, FileWrite

MIB = 1 << 20
ACCESS = "org.apache.hadoop.security.AccessControlException"
EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"


@pytest.fixture
def path(request):
    """Return a file name for this test."""
    return f"/files/{request.node.name}"


def head_of_upload(data, path, length, **query):
    """Return the request head of a second step with a body of this length."""
    target = data.target(data.names.ask("PUT", path, "CREATE", **query))
    return f"PUT {target} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n".encode()


# -- whole files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 1000, 300_000, MIB, MIB + 1, 5 * MIB + 17], ids=str)
def test_written_bytes_are_read(data, path, size):
    content = os.urandom(size)
    written = data.write(path, content, blocksize=2 * MIB)
    assert (written.status, written.body, written.headers["content-length"]) == (201, b"", "0")
    assert (
        written.headers["location"]
        == f"webhdfs://127.0.0.1:{data.names.port}{path.replace('[', '%5B').replace(']', '%5D')}"
    )
    status = data.names.ask("GET", path, "GETFILESTATUS").json["FileStatus"]
    assert (status["type"], status["length"], status["permission"]) == ("FILE", size, "644")
    read = data.read(path)
    assert read.status == 200
    assert read.headers.pop("x-request-id")
    assert read.headers == {"content-length": str(size), "content-type": "application/octet-stream"}
    assert read.body == content
    listed = data.names.ask("GET", path, "LISTSTATUS").json["FileStatuses"]["FileStatus"]
    assert listed == [status], "a file lists itself"


def test_a_chunked_body_of_unknown_length_is_written(data, path):
    """Hadoop's client sends bodies like this, in pieces of 32 KiB."""
    content = os.urandom(3 * MIB)
    pieces = (content[at : at + 32768] for at in range(0, len(content), 32768))
    assert data.write(path, pieces).status == 201
    assert data.read(path).body == content


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 10), (5, 0), (MIB - 1, 2), (2 * MIB - 1, 2 * MIB), (4 * MIB - 7, 100), (17, None), (4 * MIB - 1, None)],
)
def test_a_range_is_read_across_chunks(data, offset, length):
    content = bytes(range(256)) * (4 * MIB // 256)
    if data.names.ask("GET", "/ranged", "GETFILESTATUS").status == 404:
        assert data.write("/ranged", content, blocksize=MIB).status == 201
    asked = {"offset": offset} if length is None else {"offset": offset, "length": length}
    read = data.read("/ranged", **asked)
    expected = content[offset:] if length is None else content[offset : offset + length]
    assert (read.status, read.headers["content-length"], read.body) == (200, str(len(expected)), expected)


def test_the_client_may_append_its_own_offset_to_the_redirect(data, path):
    """For a seek, Hadoop's client goes to the datanode directly."""
    data.write(path, b"0123456789")
    target = data.target(data.names.ask("GET", path, "OPEN"))
    without = target.replace("&offset=0", "")
    assert data.served.request("GET", f"{without}&offset=4").body == b"456789"
    assert data.served.request("GET", f"{without}&offset=10").body == b""
    status, kind, message = data.served.request("GET", f"{without}&offset=11").error
    assert (status, kind) == (403, "java.io.IOException")
    assert message == f"Offset=11 out of the range [0, 10]; OPEN, path={path}"


def test_an_offset_past_the_end_is_refused_at_the_first_step_in_hdfss_words(data, path):
    data.write(path, b"0123456789")
    refused = data.names.ask("GET", path, "OPEN", offset=10)
    assert refused.error == (403, "java.io.IOException", f"Offset=10 out of the range [0, 10); OPEN, path={path}")


def test_blocks_are_where_the_datanode_is(data, path):
    data.write(path, bytes(3 * MIB), blocksize=2 * MIB)
    located = data.names.ask("GET", path, "GETFILEBLOCKLOCATIONS").json["BlockLocations"]["BlockLocation"]
    address = f"127.0.0.1:{data.server.address[1]}"
    assert located == [
        {
            "offset": offset,
            "length": length,
            "corrupt": False,
            "names": [address],
            "hosts": ["127.0.0.1"],
            "topologyPaths": [f"/rack-dn-1/{address}"],
            "storageTypes": ["DISK"],
            "cachedHosts": [],
        }
        for offset, length in ((0, 2 * MIB), (2 * MIB, MIB))
    ]
    second = data.names.ask("GET", path, "GETFILEBLOCKLOCATIONS", offset=2 * MIB, length=1)
    assert [block["offset"] for block in second.json["BlockLocations"]["BlockLocation"]] == [2 * MIB]


def test_older_clients_are_told_of_blocks_in_their_own_words(data, path):
    data.write(path, bytes(3 * MIB), blocksize=2 * MIB)
    located = data.names.ask("GET", path, "GET_BLOCK_LOCATIONS", offset=2 * MIB, length=1).json["LocatedBlocks"]
    (block,) = located["locatedBlocks"]
    (node,) = block["locations"]
    assert (located["fileLength"], block["startOffset"], block["block"]["numBytes"]) == (3 * MIB, 2 * MIB, MIB)
    assert (node["ipAddr"], node["xferPort"]) == data.server.address
    assert node["networkLocation"] == "/rack-dn-1"
    assert not block["isCorrupt"]


def test_fewer_replicas_than_asked_for_are_said_and_logged(data, path, caplog):
    assert data.write(path, b"x", replication=3).headers["x-peacefs-replicas"] == "1/3"
    assert f"{path!r} has only 1 of 3 replicas until it is repaired" in caplog.text
    assert "x-peacefs-replicas" not in data.write(path + "-2", b"x", replication=1).headers


@pytest.mark.evidence("names-are-atomic")
def test_the_name_appears_with_the_last_byte_and_the_second_writer_loses(data, path):
    first, second = (data.names.ask("PUT", path, "CREATE") for _ in range(2))
    assert data.names.ask("GET", path, "GETFILESTATUS").status == 404
    assert data.follow("PUT", first, b"first").status == 201
    assert data.follow("PUT", second, b"second").error[:2] == (403, EXISTS)
    assert data.read(path).body == b"first"
    assert data.write(path, b"third", overwrite="true").status == 201
    assert data.read(path).body == b"third"


# -- interrupted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [10, 3 * MIB], ids=["small", "large"])
def test_a_client_that_hangs_up_in_the_middle_leaves_nothing(data, path, sent):
    with data.served.connect() as wire:
        wire.sendall(head_of_upload(data, path, 4 * MIB))
        wire.sendall(bytes(sent))
    # The one thread for long uploads is free again, so another large file goes through.
    assert data.write(path + "-other", bytes(2 * MIB)).status == 201
    assert data.names.ask("GET", path, "GETFILESTATUS").status == 404
    wait_until(lambda: not data.staged(), "the half chunk is still on the disk")


@pytest.mark.parametrize("sent", [10, 3 * MIB], ids=["small", "large"])
def test_a_client_that_falls_silent_in_the_middle_is_told_and_leaves_nothing(data, path, sent):
    with data.served.connect() as wire:
        wire.sendall(head_of_upload(data, path, 4 * MIB))
        wire.sendall(bytes(sent))
        answer = wire.recv(65536)
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"the client sent nothing for 1 s; nothing was written" in answer
    assert data.names.ask("GET", path, "GETFILESTATUS").status == 404
    wait_until(lambda: not data.staged(), "the half chunk is still on the disk")


def test_a_chunked_body_without_its_end_is_no_file(data, path):
    target = data.target(data.names.ask("PUT", path, "CREATE"))
    with data.served.connect() as wire:
        wire.sendall(
            f"PUT {target} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n".encode()
        )
    wait_until(lambda: data.served.connections() == 0, "the connection is still there")
    assert data.names.ask("GET", path, "GETFILESTATUS").status == 404


@pytest.mark.evidence("trickling-request")
def test_a_long_upload_that_dawdles_is_in_nobodys_way(data, path):
    with data.served.connect() as wire:
        wire.sendall(head_of_upload(data, path, 2 * MIB + 5) + bytes(2 * MIB))
        for number in range(5):
            assert data.write(f"{path}-{number}", b"small").status == 201
            assert data.read(f"{path}-{number}").body == b"small"
        wire.sendall(b"12345")
        assert wire.recv(65536).startswith(b"HTTP/1.1 201 ")
    assert data.read(path, offset=2 * MIB).body == b"12345"


def test_more_long_uploads_than_threads_wait_and_then_are_told(data, path):
    with data.served.connect() as first, data.served.connect() as second:
        first.sendall(head_of_upload(data, path, 9 * MIB) + bytes(2 * MIB))
        wait_until(data.staged, "the first upload has begun")
        second.sendall(head_of_upload(data, path + "-2", 9 * MIB) + bytes(2 * MIB))
        second.settimeout(0.1)
        answer = None
        while answer is None:
            first.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                answer = second.recv(65536)
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"RetriableException" in answer
    assert b"too many long files are being written here; try again later" in answer


def test_a_reader_that_hangs_up_frees_its_place(data, path):
    data.write(path, bytes(8 * MIB))
    target = data.target(data.names.ask("GET", path, "OPEN"))
    for _ in range(4):  # twice as many as the gateway accepts at a time
        with data.served.connect() as wire:
            wire.sendall(f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            assert wire.recv(100).startswith(b"HTTP/1.1 200 ")
    assert len(data.read(path).body) == 8 * MIB


def test_a_slow_reader_gets_the_same_bytes(data, path):
    """Some pieces wait to be sent while the next ones are fetched."""
    content = os.urandom(12 * MIB)
    data.write(path, content)
    target = data.target(data.names.ask("GET", path, "OPEN"))
    with data.served.connect() as wire:
        wire.sendall(f"GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        received = wire.recv(100)
        time.sleep(0.3)
        while piece := wire.recv(1 << 20):
            received += piece
    assert received.partition(b"\r\n\r\n")[2] == content


def test_damage_in_the_middle_ends_the_connection_and_at_the_start_the_request(data, path, caplog):
    data.write(path, os.urandom(6 * MIB), blocksize=2 * MIB)
    chunks = sorted(
        (entry for entry in data.directory.rglob("*") if entry.is_file() and entry.stat().st_size >= 2 * MIB),
        key=lambda entry: entry.stat().st_mtime_ns,
    )[-3:]
    with chunks[1].open("r+b") as damaged:
        damaged.seek(MIB)
        damaged.write(bytes(100_000))
    with pytest.raises(http.client.IncompleteRead) as broken:
        data.read(path)
    assert 2 * MIB <= len(broken.value.partial) < 4 * MIB
    wait_until(lambda: "failed in the middle" in caplog.text, "the break is in the log")
    status, kind, message = data.read(path, offset=3 * MIB + 1).error
    assert (status, kind) == (403, "org.apache.hadoop.hdfs.BlockMissingException")
    assert "cannot be read at byte" in message
    assert len(data.read(path, offset=4 * MIB).body) == 2 * MIB


# -- tokens and routes -----------------------------------------------------------------------------------


def test_a_token_that_is_forged_or_expired_or_of_another_kind_opens_nothing(data, path, signer):
    data.write(path, b"x")
    create = data.target(data.names.ask("PUT", path + "-2", "CREATE"))
    read = data.target(data.names.ask("GET", path, "OPEN"))
    read_token = read.partition("token=")[2].partition("&")[0]
    write_token = create.partition("token=")[2].partition("&")[0]
    expired = signer.sign(FileWrite(1.0, NewFile(path=path, user="eve", replication=1, block_bytes=MIB)))
    for token in (write_token[:-8] + "AAAAAAAA", read_token, expired, "x"):
        assert data.served.request("PUT", create.replace(write_token, token), b"x").error[:2] == (403, ACCESS)
    for token in (read_token[:-8] + "AAAAAAAA", write_token):
        assert data.served.request("GET", read.replace(read_token, token)).error[:2] == (403, ACCESS)
    assert data.names.ask("GET", path + "-2", "GETFILESTATUS").status == 404


@pytest.mark.evidence("open-file-replaced")
def test_deleted_file_is_read_by_who_has_opened_it_until_its_replicas_are_dropped(data, path):
    content = os.urandom(MIB + 1)
    data.write(path, content, blocksize=MIB)
    redirect = data.names.ask("GET", path, "OPEN")
    data.names.ask("DELETE", path, "DELETE")
    assert data.follow("GET", redirect).body == content
    data.names.drop_freed()
    assert data.follow("GET", redirect).error[:2] == (404, "java.io.FileNotFoundException")


@pytest.mark.evidence("open-file-replaced")
def test_replaced_file_is_read_by_who_has_opened_it_until_its_replicas_are_dropped(data, path):
    content = os.urandom(MIB + 1)
    data.write(path, content, blocksize=MIB)
    opened = [data.names.ask("GET", path, op) for op in ("OPEN", "GETFILECHECKSUM")]
    before = [data.follow("GET", redirect).body for redirect in opened]
    assert before[0] == content
    for replacement in (b"", os.urandom(MIB + 1)):
        data.write(path, replacement, blocksize=MIB, overwrite="true")
        assert [data.follow("GET", redirect).body for redirect in opened] == before
        assert data.read(path).body == replacement
    data.names.drop_freed()
    for redirect in opened:
        status, kind, message = data.follow("GET", redirect).error
        assert (status, kind) == (403, "java.io.IOException")
        assert "was changed or replaced since it was opened; open it again" in message
    assert data.read(path).body == replacement


@pytest.mark.evidence("visible-is-readable")
def test_version_of_a_file_of_very_many_chunks_is_the_one_that_was_opened(data, path, monkeypatch):
    """The file has too many chunks for the token."""
    monkeypatch.setattr("peacefs.coordinator.operations.read.read_token_chunks_max", 2)
    content = os.urandom(3 * MIB)
    data.write(path, content, blocksize=MIB)
    redirect = data.names.ask("GET", path, "OPEN")
    data.append(path, b"more")
    assert data.follow("GET", redirect).body == content, "of the length that it had"
    assert data.names.ask("POST", path, "TRUNCATE", newlength=3 * MIB - 1).json["boolean"]
    data.append(path, b"1")
    assert data.follow("GET", redirect).error[:2] == (403, "java.io.IOException")
    data.names.ask("DELETE", path, "DELETE")
    assert data.follow("GET", redirect).error[:2] == (404, "java.io.FileNotFoundException")


def test_a_file_of_one_chunk_is_read_without_a_question_and_once_its_replicas_are_gone_no_more(data, path):
    data.write(path, b"small")
    redirect = data.names.ask("GET", path, "OPEN")
    data.names.ask("DELETE", path, "DELETE")
    assert data.follow("GET", redirect).body == b"small", "as of a file that is open"
    (token,) = parse_qs(urlsplit(redirect.headers["location"]).query)["token"]
    (chunk,) = data.signer.verify(token, FileRead, time.time()).chunks
    assert data.driver.run(data.store.delete(chunk.chunk, chunk.version))
    data.names.drop_freed()
    assert data.follow("GET", redirect).error[:2] == (404, "java.io.FileNotFoundException")


@pytest.mark.parametrize(
    ("method", "target", "status", "words"),
    [
        ("POST", "/webhdfs/v1/f?op=APPEND", 400, '"token": it is missing'),
        ("GET", "/webhdfs/v1/f?op=LISTSTATUS", 400, "No enum constant"),
        ("GET", "/webhdfs/v1/f?op=CREATE", 400, "CREATE is asked with PUT"),
        ("PUT", "/webhdfs/v1/f?op=CREATE&token=x", 400, '"first": it is missing'),
        ("GET", "/webhdfs/v1/f?op=OPEN", 400, '"token": it is missing'),
        ("GET", "/favicon.ico", 404, "there is nothing here"),
        ("POST", "/", 404, "there is nothing here"),
    ],
)
def test_operation_that_no_datanode_has_is_a_remote_exception(data, method, target, status, words):
    answered, _kind, message = data.served.request(method, target).error
    assert answered == status
    assert words in message


def test_a_browser_is_greeted(data):
    greeting = data.served.request("GET", "/")
    assert (greeting.status, greeting.headers["content-type"]) == (200, "text/plain")
    assert b"peacefs" in greeting.body


# -- stock tools and many at once --------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("size", [5, 3 * MIB])
@pytest.mark.parametrize("headers", [[], ["-H", "Expect: 100-continue"]], ids=["plain", "expect"])
def test_curl_writes_and_reads_through_both_steps(data, path, tmp_path, size, headers):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(size))
    name = path.translate(str.maketrans("[]", "()"))
    url = f"http://127.0.0.1:{data.names.port}/webhdfs/v1{name}"
    curl = ["curl", "-sS", "-L", "--fail-with-body", "--max-time", "20", "-w", "%{http_code}"]
    put = subprocess.run(
        [*curl, *headers, "-T", source, f"{url}?op=CREATE"], capture_output=True, text=True, check=False
    )
    assert (put.returncode, put.stdout, put.stderr) == (0, "201", "")
    subprocess.run([*curl, "-o", target, f"{url}?op=OPEN"], capture_output=True, check=True)
    assert target.read_bytes() == source.read_bytes()


def test_many_small_files_at_once(data, path):
    def cycle(number):
        content = b"%d" % number * 100
        assert data.write(f"{path}/{number}", content).status == 201
        assert data.read(f"{path}/{number}").body == content

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(cycle, range(200)))


@pytest.fixture
def fsspec_files(data):
    """Yield fsspec's own WebHDFS client."""
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem(
        "webhdfs", host="127.0.0.1", port=data.names.port, user="alice", skip_instance_cache=True
    )
    yield files
    files.session.close()


def test_fsspecs_client_writes(data, path, fsspec_files):
    """It creates an empty file, and then posts one block after another to the same APPEND URL."""
    content = os.urandom(3 * MIB + 5)
    with fsspec_files.open(path, "wb", block_size=MIB) as opened:
        for at in range(0, len(content), 100_000):
            opened.write(content[at : at + 100_000])
    assert data.read(path).body == content
    fsspec_files.pipe_file(path, b"anew")
    assert fsspec_files.cat_file(path) == b"anew"
    fsspec_files.cp_file(path, f"{path}-copy")
    assert fsspec_files.cat_file(f"{path}-copy") == b"anew"
    with fsspec_files.open(f"{path}-empty", "wb"):
        pass
    assert fsspec_files.info(f"{path}-empty")["size"] == 0


def test_fsspecs_client_reads_lists_and_moves(data, path, fsspec_files):
    files = fsspec_files
    content = os.urandom(3 * MIB)
    assert data.write(f"{path}/a", content).status == 201
    assert files.ls(path) == [f"{path}/a"]
    assert files.info(f"{path}/a")["size"] == len(content)
    assert files.cat_file(f"{path}/a", 100, 2 * MIB) == content[100 : 2 * MIB]
    with files.open(f"{path}/a", "rb") as opened:
        opened.seek(MIB + 1)
        assert opened.read(10) == content[MIB + 1 : MIB + 11]
    files.mkdir(f"{path}/b")
    files.mv(f"{path}/a", f"{path}/b/c")
    assert files.exists(f"{path}/b/c") and not files.exists(f"{path}/a")
    files.rm(path, recursive=True)
    with pytest.raises(FileNotFoundError):
        files.info(path)


# -- checksums -----------------------------------------------------------------------------------------


def checksum(data, path):
    located = data.names.ask("GET", path, "GETFILECHECKSUM", noredirect="true").json["Location"]
    with urllib.request.urlopen(located) as answer:
        return json.load(answer)["FileChecksum"]


def test_a_checksum_is_of_what_the_file_holds_and_not_of_its_chunks(data, path, fsspec_files):
    content = os.urandom(3 * MIB + 1000)
    data.write(f"{path}/whole", content, blocksize=2 * MIB)
    data.write(f"{path}/grown", content[:700], blocksize=2 * MIB)
    grown = data.names.ask("POST", f"{path}/grown", "APPEND")
    assert data.follow("POST", grown, content[700:]).status == 200
    sums = [block_sums(content[: 2 * MIB]), block_sums(content[2 * MIB :])]
    hashed = hashlib.md5(b"".join(sums)).hexdigest()
    assert checksum(data, f"{path}/whole") == {
        "algorithm": "MD5-of-4096MD5-of-512CRC32C",
        "bytes": f"{512:08x}{4096:016x}{hashed}",
        "length": 28,
    }
    assert checksum(data, f"{path}/grown") == checksum(data, f"{path}/whole") == fsspec_files.ukey(f"{path}/whole")
    data.write(f"{path}/other", content[:-1] + bytes([content[-1] ^ 1]), blocksize=2 * MIB)
    assert checksum(data, f"{path}/other") != checksum(data, f"{path}/whole")


def block_sums(block):
    """Return HDFS's checksum of a block: the MD5 of the CRC32Cs of every 512 bytes."""
    sums = [crc32c(block[at : at + 512]).to_bytes(4, "big") for at in range(0, len(block), 512)]
    return hashlib.md5(b"".join(sums)).digest()


def test_one_block_and_none_have_the_checksums_that_hdfs_gives_them(data, path):
    """HDFS also hashes the unused part of its buffer of MD5s. For an empty file, only that is hashed."""
    data.write(f"{path}/one", b"x" * 1000)
    padded = block_sums(b"x" * 1000) + bytes(16)
    assert checksum(data, f"{path}/one") == {
        "algorithm": "MD5-of-0MD5-of-512CRC32C",
        "bytes": f"{512:08x}{0:016x}{hashlib.md5(padded).hexdigest()}",
        "length": 28,
    }
    data.write(f"{path}/none", b"")
    assert checksum(data, f"{path}/none") == {
        "algorithm": "MD5-of-0MD5-of-0CRC32",
        "bytes": "000000000000000000000000" + "70bc8f4b72a86921468bf8e8441dce51",
        "length": 28,
    }
    assert data.names.ask("GET", path, "GETFILECHECKSUM").error[:2] == (404, "java.io.FileNotFoundException")
    assert data.names.ask("GET", f"{path}/no", "GETFILECHECKSUM").error[:2] == (
        404,
        "java.io.FileNotFoundException",
    )


@given(st.binary(max_size=5000), st.lists(st.integers(0, 1500), max_size=12), st.sampled_from([512, 1024, 2048]))
def test_a_checksum_does_not_depend_on_the_pieces(content, cuts, block_bytes):
    whole, pieces, at = FileChecksum(block_bytes), FileChecksum(block_bytes), 0
    whole.take_in(content)
    for cut in [*cuts, len(content)]:
        pieces.take_in(content[at : at + cut])
        at += cut
    assert pieces.told() == whole.told()
