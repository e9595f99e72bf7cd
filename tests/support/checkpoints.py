"""Checkpoints as Spark 4.3 writes them, made in memory: every kind of file, in both formats of state."""

from __future__ import annotations

import io
import json
import struct
import uuid
import zipfile
from collections.abc import Iterable
from typing import BinaryIO

import crc32c
import pyarrow
import xxhash

from peacefs.protocol.errors import FileNotFound
from peacefs.spark_connector.checkpoints.formats.lz4_stream import MAGIC, checksum_of
from peacefs.spark_connector.checkpoints.formats.sst import MAGIC as TABLE_MAGIC
from peacefs.spark_connector.checkpoints.tree import TreeEntry

ROOT = "/checkpoints/orders"
QUERY = "407ea541-22d9-4e7a-a17b-05a2fb1787ee"
_NAMES = uuid.UUID(int=7)


class MemoryTree:
    """Files by path, in memory. The twin of the trees on disk."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = files if files is not None else {}
        #: Attributes of directories, by path and name.
        self.attributes: dict[tuple[str, str], bytes] = {}

    def identity(self, path: str) -> str:
        return f"id of {path}"

    def uri(self, path: str) -> str:
        return f"webhdfs://here:9870{path}"

    def attribute(self, path: str, name: str) -> bytes | None:
        return self.attributes.get((path, name))

    def entries(self, directory: str) -> list[TreeEntry]:
        found: dict[str, TreeEntry] = {}
        prefix = directory.rstrip("/") + "/"
        for path, data in sorted(self.files.items()):
            if path.startswith(prefix):
                name, slash, _ = path.removeprefix(prefix).partition("/")
                found[name] = TreeEntry(prefix + name, bool(slash), 0 if slash else len(data), 1000)
        if not found:
            raise FileNotFound(f"there is no directory {directory}")
        return list(found.values())

    def open(self, path: str) -> BinaryIO:
        if path not in self.files:
            raise FileNotFound(path)
        return io.BytesIO(self.files[path])


def lz4_stream(contents: bytes, block_bytes: int = 1 << 16) -> bytes:
    """Frame data as LZ4Block without compression, as lz4-java does for incompressible data."""
    frames = []
    for start in range(0, len(contents), block_bytes):
        block = contents[start : start + block_bytes]
        checksum = checksum_of(block)
        frames.append(struct.pack("<8sBiiI", MAGIC, 0x15, len(block), len(block), checksum) + block)
    return b"".join(frames) + struct.pack("<8sBiiI", MAGIC, 0x15, 0, 0, 0)


def changelog(
    records: Iterable[tuple[bytes, bytes | None]],
    lineage: Iterable[tuple[int, str]] | None = None,
    *,
    families: bool = False,
) -> bytes:
    """Return a changelog in the format for `lineage` and column `families`."""
    form = 1 + families + 2 * (lineage is not None)
    out = bytearray()
    if form > 1:
        out += _utf(f"v{form}")
    if lineage is not None:
        steps = [{"version": number, "checkpointUniqueId": uid} for number, uid in lineage]
        out += _utf(json.dumps(steps, separators=(",", ":")))
    for key, value in records:
        if families:
            out += b"\x01" if value is not None else b"\x02"
        out += struct.pack(">i", len(key)) + key
        out += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return lz4_stream(bytes(out) + (b"\x00" if families else struct.pack(">i", -1)))


def snapshot(ssts: dict[str, int]) -> bytes:
    """Return a snapshot's zip file, which lists SST files with their lengths."""
    members = [
        {"localFileName": f"{number:06}.sst", "dfsSstFileName": name, "sizeBytes": length}
        for number, (name, length) in enumerate(ssts.items(), 8)
    ]
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("CURRENT", "MANIFEST-000005\n")
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": members, "numKeys": 3}))
    return target.getvalue()


def table(*, snappy: bool = False) -> bytes:
    """Write an SST file of format 5 like RocksDB's: a data block, the meta blocks, the index, the footer.

    With `snappy`, data and index are compressed, as in Spark 3.5.
    """
    out = bytearray()

    def block(entries: Iterable[tuple[bytes, bytes]], *, packed: bool = False) -> bytes:
        contents = b"".join(bytes([0, len(key), len(value)]) + key + value for key, value in entries)
        offset, data = len(out), contents + struct.pack("<II", 0, 1)
        if packed:
            data = pyarrow.compress(data, codec="snappy", asbytes=True)
        # The compression type byte is mixed into the checksum separately.
        checksum = (xxhash.xxh3_64_intdigest(data) ^ packed * 0x6B9083D9) & 0xFFFFFFFF
        out.extend(data + bytes([packed]) + struct.pack("<I", checksum))
        return _varint(offset) + _varint(len(data))

    data = block(((b"key %d" % number, b"value" * 9) for number in range(20)), packed=snappy)
    properties = block([(b"rocksdb.block.based.table.index.type", bytes(4))])
    metaindex = block([(b"rocksdb.properties", properties)])
    index = block([(b"key 9", data)], packed=snappy)
    handles = (metaindex + index).ljust(40, b"\x00")
    return bytes(out) + b"\x04" + handles + struct.pack("<I", 5) + TABLE_MAGIC


def _varint(number: int) -> bytes:
    pieces = bytearray()
    while number >= 0x80:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*pieces, number])


def schema(*columns: str) -> bytes:
    """Return a state schema of version 2. `columns` are the key's."""
    fields = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in columns]
    texts = (json.dumps({"type": "struct", "fields": each}) for each in (fields, []))
    return _utf("v2") + b"".join(struct.pack(">i", 1) + _utf(text) for text in texts)


def spark_checksum(data: bytes) -> bytes:
    value = struct.unpack(">i", struct.pack(">I", crc32c.crc32c(data)))[0]
    return json.dumps({"algorithm": "CRC32C", "value": value, "mainFileSize": len(data)}).encode()


def uid(partition: int, version: int) -> str:
    """Return the unique id of a state version in `checkpoint(state_format=2)`."""
    return str(uuid.uuid5(_NAMES, f"{partition} {version}"))


def checkpoint(
    *,
    batches: int = 8,
    partitions: int = 2,
    state_format: int = 1,
    snapshot_every: int = 3,
    root: str = ROOT,
    spark: str = "4.3",
) -> MemoryTree:
    """Make a checkpoint of an aggregation over a file source after `batches` batches.

    The source's log is compacted at every third entry. With `spark` 3.5 there is no metadata of operators.
    """
    files = {"metadata": json.dumps({"id": QUERY}).encode()}
    for batch in range(batches):
        files |= _logs(batch, partitions, state_format, spark)
    store = [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": partitions}]
    operator = {"operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"}, "stateStoreInfo": store}
    if spark != "3.5":
        files["state/0/_metadata/metadata"] = b"v1\n" + json.dumps(operator).encode()
    files["state/0/0/_metadata/schema"] = schema("word")
    for partition in range(partitions):
        files |= _state(partition, batches, state_format, snapshot_every)
    return MemoryTree({f"{root}/{name}": data for name, data in files.items()})


def _logs(batch: int, partitions: int, state_format: int, spark: str) -> dict[str, bytes]:
    conf = {"spark.sql.shuffle.partitions": str(partitions)}
    if spark != "3.5":
        conf["spark.sql.streaming.stateStore.encodingFormat"] = "unsaferow"
        conf["spark.sql.streaming.stateStore.rowChecksum.enabled"] = "false"
    planned = json.dumps({"batchWatermarkMs": 1000, "batchTimestampMs": 2000, "conf": conf})
    done: dict[str, object] = {"nextBatchWatermarkMs": 3000}
    if state_format == 2:
        done["stateUniqueIds"] = {"0": [[uid(partition, batch + 1)] for partition in range(partitions)]}
    compact = batch % 3 == 2
    entries = [
        json.dumps({"path": f"file:///in/{number}.txt", "timestamp": number, "batchId": number})
        for number in range(0 if compact else batch, batch + 1)
    ]
    return {
        f"offsets/{batch}": f'v1\n{planned}\n{{"logOffset":{batch}}}'.encode(),
        f"commits/{batch}": f"v{state_format}\n{json.dumps(done)}".encode(),
        f"sources/0/{batch}{'.compact' if compact else ''}": "\n".join(["v1", *entries]).encode(),
    }


def _state(partition: int, batches: int, state_format: int, snapshot_every: int) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    directory = f"state/0/{partition}"
    ssts: dict[str, int] = {}
    for version in range(1, batches + 1):
        name = str(version) if state_format == 1 else f"{version}_{uid(partition, version)}"
        since = (version - 1) // snapshot_every * snapshot_every or 1
        lineage = [(step, uid(partition, step)) for step in range(since, version)] if state_format == 2 else None
        records = [(f"key {version} {number}".encode(), b"value" * 9) for number in range(20)]
        files[f"{directory}/{name}.changelog"] = changelog([*records, (b"gone", None)], lineage)
        if version % snapshot_every == 0:
            sst = f"{version + 5:06}-{uid(partition, 1000 + version)}.sst"
            files[f"{directory}/SSTs/{sst}"] = table()
            ssts[sst] = len(files[f"{directory}/SSTs/{sst}"])
            files[f"{directory}/{name}.zip"] = snapshot(ssts)
    if state_format == 2:
        checked = [name for name in files if name.endswith((".changelog", ".zip"))]
        files |= {f"{name}.crc": spark_checksum(files[name]) for name in checked}
    return files


def _utf(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data
