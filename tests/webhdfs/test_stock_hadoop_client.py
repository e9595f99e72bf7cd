"""The Hadoop client that PySpark bundles, unmodified, with the calls of Spark's checkpoints.

It runs against real processes, in one JVM without a Spark context. All classes below belong to Hadoop or Spark.
"""

from __future__ import annotations

import random
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

py4j_protocol = pytest.importorskip("py4j.protocol")

from support.stock_hadoop import Hadoop, running_hadoop  # noqa: E402
from support.waiting import wait_until  # noqa: E402

from peacefs.client.local_cluster.cluster import LocalCluster  # noqa: E402

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
MIB = 1 << 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), datanodes=3, port=0) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def hadoop(cluster: LocalCluster, stock_gateway: Any) -> Iterator[Hadoop]:
    with running_hadoop(stock_gateway, cluster.webhdfs_uri) as hadoop:
        yield hadoop


def raises(java_class: str) -> Any:
    """Expect a Java exception, by its class at the start of its stack trace."""
    return pytest.raises(py4j_protocol.Py4JJavaError, match=rf"\n: {java_class.replace('.', '[.]')}: ")


@pytest.mark.parametrize("size", [0, 1, 100_000, 3 * MIB], ids=str)
def test_client_reads_what_it_writes(hadoop, size):
    data = random.Random(size).randbytes(size)
    hadoop.write(f"/cycle/{size}", data)
    assert hadoop.read(f"/cycle/{size}") == data
    status = hadoop.fs.getFileStatus(hadoop.path(f"/cycle/{size}"))
    assert (status.getLen(), status.isFile(), status.getReplication()) == (size, True, 3)
    assert status.getPermission().toString() == "rw-r--r--"


def test_a_seek_goes_on_reading_elsewhere(hadoop):
    data = random.Random(7).randbytes(2 * MIB)
    hadoop.write("/seek", data)
    stream = hadoop.fs.open(hadoop.path("/seek"))
    try:
        for position in (MIB, 0, 2 * MIB - 1, 17, 17):
            stream.seek(position)
            assert stream.read() == data[position]
            assert stream.getPos() == position + 1
        stream.seek(2 * MIB)
        assert stream.read() == -1
    finally:
        stream.close()
    assert hadoop.read("/seek", offset=MIB + 5) == data[MIB + 5 :]


def test_open_stream_is_a_file_and_a_second_creator_is_told(hadoop):
    first = hadoop.fs.create(hadoop.path("/late/file"), False)
    assert hadoop.exists("/late/file")
    first.write(b"one")
    with raises("org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException"):
        hadoop.fs.create(hadoop.path("/late/file"), False)
    first.close()
    assert hadoop.read("/late/file") == b"one"
    with raises("org.apache.hadoop.fs.FileAlreadyExistsException"):
        hadoop.fs.create(hadoop.path("/late/file"), False)


def test_second_appender_is_told(hadoop):
    hadoop.write("/late/log", b"0")
    first = hadoop.fs.append(hadoop.path("/late/log"))
    first.write(b"1")
    first.flush()
    # If its flushed data is visible, its request has arrived.
    wait_until(lambda: hadoop.read("/late/log") == b"01", "what was flushed is not there")
    with raises("org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException"):
        hadoop.fs.append(hadoop.path("/late/log"))
    first.close()
    append(hadoop, "/late/log", b"2")
    assert hadoop.read("/late/log") == b"012"


def test_file_is_created_with_a_permission_before_it_has_bytes(hadoop):
    """Spark's event log and MapReduce create a file, set its permission, and then return the stream."""
    permission = hadoop.fs_package.permission.FsPermission("770")
    kinds = [
        hadoop.jvm.java.lang.Class.forName(f"org.apache.hadoop.fs.{name}")
        for name in ("FileSystem", "Path", "permission.FsPermission")
    ]
    # The method is static and shares its name with instance methods, so py4j does not find it.
    create = kinds[0].getMethod("create", hadoop.array(hadoop.jvm.java.lang.Class, *kinds))
    arguments = hadoop.array(hadoop.jvm.java.lang.Object, hadoop.fs, hadoop.path("/late/permitted"), permission)
    created = create.invoke(None, arguments)
    created.write(b"events")
    created.close()
    status = hadoop.fs.getFileStatus(hadoop.path("/late/permitted"))
    assert (status.getPermission().toString(), status.getLen()) == ("rwxrwx---", 6)


def test_created_file_is_immediately_visible(hadoop):
    """This is one of Hadoop's contract tests, as are the next two."""
    for number in range(20):
        path = hadoop.path(f"/contract/created-{number}")
        out = hadoop.fs.create(path, False, 4096, 1, 1024)
        assert hadoop.fs.exists(path), number
        out.close()


def test_created_file_is_visible_on_flush(hadoop):
    path = hadoop.path("/contract/flushed")
    out = hadoop.fs.create(path, False, 4096, 1, 1024)
    out.write(ord("a"))
    out.flush()
    assert hadoop.fs.exists(path)
    out.close()


def test_syncable_stream_is_opened_while_it_is_written(hadoop):
    """The stream does not report that it can flush, but flushed data becomes visible."""
    path = hadoop.path("/contract/synced")
    out = hadoop.fs.create(path, True)
    assert not out.hasCapability("hsync")
    out.hflush()
    out.write(ord("a"))
    out.hsync()
    stream = hadoop.fs.open(path)
    assert stream.read() in (ord("a"), -1)
    stream.close()
    wait_until(lambda: hadoop.read("/contract/synced") == b"a", "what was flushed is not there")
    out.write(ord("b"))
    out.hsync()
    wait_until(lambda: hadoop.read("/contract/synced") == b"ab", "what was flushed is not there")
    out.close()
    assert hadoop.read("/contract/synced") == b"ab"


def test_create_without_overwrite_refuses_what_is_there(hadoop):
    hadoop.write("/taken", b"x")
    with raises("org.apache.hadoop.fs.FileAlreadyExistsException"):
        hadoop.write("/taken", b"y", overwrite=False)
    hadoop.write("/taken", b"z", overwrite=True)
    assert hadoop.read("/taken") == b"z"


def append(hadoop, name, data):
    stream = hadoop.fs.append(hadoop.path(name))
    stream.write(data)
    stream.close()


def test_client_appends_at_the_end(hadoop):
    data = random.Random(5).randbytes(3 * MIB)
    hadoop.write("/append/file", b"begin")
    append(hadoop, "/append/file", data)
    append(hadoop, "/append/file", b"end")
    assert hadoop.read("/append/file") == b"begin" + data + b"end"
    with raises("java.io.FileNotFoundException"):
        hadoop.fs.append(hadoop.path("/append/none"))
    with raises("org.apache.hadoop.fs.FileAlreadyExistsException"):
        hadoop.fs.append(hadoop.path("/append"))


def test_truncate_and_concat(hadoop):
    for name, data in (("a", b"aaaaaaaa"), ("b", b"bb"), ("c", b"ccc")):
        hadoop.write(f"/reshape/{name}", data)
    assert hadoop.fs.truncate(hadoop.path("/reshape/a"), 5) is True
    assert hadoop.read("/reshape/a") == b"aaaaa"
    sources = hadoop.gateway.new_array(hadoop.fs_package.Path, 2)
    sources[0], sources[1] = hadoop.path("/reshape/c"), hadoop.path("/reshape/b")
    hadoop.fs.concat(hadoop.path("/reshape/a"), sources)
    assert hadoop.read("/reshape/a") == b"aaaaacccbb"
    assert hadoop.names("/reshape") == ["a"]
    # It is no IOException, so Hadoop's client leaves it wrapped, as with HDFS.
    with pytest.raises(py4j_protocol.Py4JJavaError, match=r"\(org.apache.hadoop.HadoopIllegalArgumentException\)"):
        hadoop.fs.truncate(hadoop.path("/reshape/a"), 11)
    hadoop.fs.concat(hadoop.path("/reshape/a"), sources)  # Repeat the request as if its answer had been lost.
    assert hadoop.read("/reshape/a") == b"aaaaacccbb"
    sources[0] = hadoop.path("/reshape/never")
    with raises("java.io.FileNotFoundException"):
        hadoop.fs.concat(hadoop.path("/reshape/a"), sources)


def test_rename_is_strict_and_overwrites_when_asked(hadoop):
    hadoop.write("/rename/a", b"a")
    hadoop.write("/rename/b", b"b")
    with raises("org.apache.hadoop.fs.FileAlreadyExistsException"):
        hadoop.rename("/rename/a", "/rename/b")
    hadoop.rename("/rename/a", "/rename/b", "OVERWRITE")
    assert hadoop.names("/rename") == ["b"]
    assert hadoop.read("/rename/b") == b"a"
    with raises("java.io.FileNotFoundException"):
        hadoop.rename("/rename/none", "/rename/c")
    assert not hadoop.fs.rename(hadoop.path("/rename/none"), hadoop.path("/rename/c"))
    assert hadoop.fs.rename(hadoop.path("/rename/b"), hadoop.path("/rename/c"))
    assert hadoop.names("/rename") == ["c"]


def test_sparks_checkpoint_manager_commits_atomically(hadoop):
    """The offset log and state stores use CreateAtomic: a hidden temporary file, then a rename."""
    manager = hadoop.checkpoints
    target = hadoop.path("/ck/offsets/0")
    manager.mkdirs(hadoop.path("/ck/offsets"))
    stream = manager.createAtomic(target, False)
    stream.write(b"v1")
    assert not manager.exists(target)
    assert "0" not in hadoop.names("/ck/offsets"), "while it is written it has a temporary name"
    stream.close()
    assert hadoop.names("/ck/offsets") == ["0"]
    assert hadoop.read("/ck/offsets/0") == b"v1"
    late = manager.createAtomic(target, False)
    late.write(b"v2")
    with raises("org.apache.hadoop.fs.FileAlreadyExistsException"):
        late.close()
    over = manager.createAtomic(target, True)
    over.write(b"v3")
    over.close()
    assert hadoop.read("/ck/offsets/0") == b"v3"
    cancelled = manager.createAtomic(hadoop.path("/ck/offsets/1"), False)
    cancelled.write(b"never")
    cancelled.cancel()
    assert not manager.exists(hadoop.path("/ck/offsets/1"))
    manager.delete(target)
    assert not manager.exists(target)


def test_listing_deleting_and_existence(hadoop):
    for name in ("b", "a", "c/d"):
        hadoop.write(f"/tree/{name}", b"x")
    assert hadoop.names("/tree") == ["a", "b", "c"]
    assert hadoop.names("/tree/a") == ["a"], "a file lists itself"
    iterator = hadoop.fs.listStatusIterator(hadoop.path("/tree"))
    seen = []
    while iterator.hasNext():
        seen.append(iterator.next().getPath().getName())
    assert seen == ["a", "b", "c"]
    with raises("org.apache.hadoop.fs.PathIsNotEmptyDirectoryException"):
        hadoop.fs.delete(hadoop.path("/tree"), False)
    summary = hadoop.fs.getContentSummary(hadoop.path("/tree"))
    assert (summary.getFileCount(), summary.getDirectoryCount(), summary.getLength()) == (3, 2, 3)
    assert hadoop.fs.delete(hadoop.path("/tree"), True)
    assert not hadoop.fs.delete(hadoop.path("/tree"), True)
    assert not hadoop.exists("/tree")
    with raises("java.io.FileNotFoundException"):
        hadoop.names("/tree")
    with raises("java.io.FileNotFoundException"):
        hadoop.read("/tree/a")


def test_attributes_are_set_and_shown(hadoop):
    hadoop.write("/attributes", b"x")
    path = hadoop.path("/attributes")
    hadoop.fs.setTimes(path, 1_000_000, 2_000_000)
    hadoop.fs.setPermission(path, hadoop.fs_package.permission.FsPermission("600"))
    hadoop.fs.setOwner(path, "alice", "staff")
    assert hadoop.fs.setReplication(path, 2)
    status = hadoop.fs.getFileStatus(path)
    assert (status.getModificationTime(), status.getOwner(), status.getGroup()) == (1_000_000, "alice", "staff")
    assert (status.getPermission().toString(), status.getReplication()) == ("rw-------", 2)


def test_blocks_have_hosts(hadoop):
    hadoop.write("/blocks", bytes(100))
    (block,) = hadoop.fs.getFileBlockLocations(hadoop.path("/blocks"), 0, 100)
    assert (block.getOffset(), block.getLength(), list(block.getHosts())) == (0, 100, ["127.0.0.1"] * 3)


def test_block_locations_for_older_clients_are_what_hadoop_parses(hadoop, cluster):
    """This client no longer sends GET_BLOCK_LOCATIONS, but it still has the parser for the answer."""
    hadoop.write("/blocks-of-old", bytes(100))
    asked = "/webhdfs/v1/blocks-of-old?op=GET_BLOCK_LOCATIONS&offset=0&length=100"
    with urllib.request.urlopen(cluster.http_address + asked) as answer:
        told = answer.read().decode()
    kinds = hadoop.jvm.java.lang.Class
    a_map = kinds.forName("java.util.Map")
    parameters = hadoop.array(kinds, a_map)
    arguments = hadoop.array(
        hadoop.jvm.java.lang.Object,
        hadoop.jvm.com.fasterxml.jackson.databind.ObjectMapper().readValue(told, a_map),
    )
    parse = kinds.forName("org.apache.hadoop.hdfs.web.JsonUtilClient").getDeclaredMethod(
        "toLocatedBlocks", parameters
    )
    parse.setAccessible(True)
    (block,) = hadoop.jvm.org.apache.hadoop.hdfs.DFSUtilClient.locatedBlocks2Locations(
        parse.invoke(None, arguments)
    )
    assert (block.getOffset(), block.getLength(), list(block.getHosts())) == (0, 100, ["127.0.0.1"] * 3)
    assert not block.isCorrupt()


@pytest.mark.parametrize(
    "name",
    ["with space", "per%cent", "at=10%3A00", "a+b", "ümläut 日本 😀", "semi;c", "a=b&c", "col#x?y", "quote'\""],
)
def test_names_that_partitions_have(hadoop, name):
    hadoop.write(f"/names/{name}/part", b"x")
    assert name in hadoop.names("/names")
    hadoop.rename(f"/names/{name}/part", f"/names/{name}/{name}")
    assert hadoop.read(f"/names/{name}/{name}") == b"x"


def test_unsupported_operations_are_said_to_be_unsupported(hadoop):
    hadoop.write("/unsupported", b"x")
    with raises("java.lang.UnsupportedOperationException"):
        hadoop.fs.setErasureCodingPolicy(hadoop.path("/unsupported"), "RS-6-3-1024k")


def test_file_without_acl_and_attributes_is_shown_so(hadoop):
    hadoop.write("/plain", b"x")
    path = hadoop.path("/plain")
    acl = hadoop.fs.getAclStatus(path)
    assert (acl.getOwner(), acl.getPermission().toString(), list(acl.getEntries())) == (
        hadoop.fs.getFileStatus(path).getOwner(),
        "rw-r--r--",
        [],
    )
    assert (list(hadoop.fs.listXAttrs(path)), dict(hadoop.fs.getXAttrs(path))) == ([], {})
    with raises("java.io.IOException"):
        hadoop.fs.getXAttr(path, "user.colour")
    with raises("java.io.FileNotFoundException"):
        hadoop.fs.getAclStatus(hadoop.path("/nothing"))


def test_checksums_tell_equal_files_from_others(hadoop):
    data = random.Random(7).randbytes(2 * MIB)
    for name, content in (("a", data), ("b", data), ("c", data[::-1]), ("empty", b"")):
        hadoop.write(f"/sums/{name}", content)
    one, same, other, empty = (
        hadoop.fs.getFileChecksum(hadoop.path(f"/sums/{name}")) for name in ("a", "b", "c", "empty")
    )
    assert one.equals(same) and not one.equals(other)
    assert one.getAlgorithmName() == "MD5-of-0MD5-of-512CRC32C"
    assert empty.getAlgorithmName() == "MD5-of-0MD5-of-0CRC32"


def test_the_space_of_the_cluster_is_told(hadoop):
    hadoop.write("/space", bytes(MIB))
    space = hadoop.fs.getStatus()
    assert 3 * MIB <= space.getUsed() < space.getCapacity()
    assert 0 < space.getRemaining() < space.getCapacity()
