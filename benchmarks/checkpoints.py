"""Fork, export, import, verify and roll back a checkpoint of many small files, over real services.

The checkpoint is of a stateful query of 200 partitions, with a changelog for each partition and batch, as Spark
writes them; r = 1, one datanode, one client, all on this machine. It is made on the local disk and imported into
the cluster as an archive. CPU is that of this process, the client, and of the coordinator.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peacefs.client.command_line.progress import TransferProgress
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.formats.lz4_stream import MAGIC, checksum_of
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.relocation import export, fork, restore
from peacefs.spark_connector.checkpoints.rollback import RollbackRequest, roll_back
from peacefs.spark_connector.checkpoints.tree import LocalTree, PeaceTree
from peacefs.spark_connector.checkpoints.verification import verify

from .processor_time import cpu_s
from .report import show

_PARTITIONS = 200
_ROOT = "/checkpoints/orders"


def main(*, quick: bool = False, files: int | None = None) -> None:
    wanted = files or (1000 if quick else 10_000)
    batches = max(3, wanted // (_PARTITIONS + 3))
    with tempfile.TemporaryDirectory() as scratch:
        local = Path(scratch) / "checkpoint"
        count = _make(local, batches)
        with (
            LocalCluster(Path(scratch) / "cluster", datanodes=1, port=0) as cluster,
            PeaceFileSystem(cluster.http_address) as opened,
        ):
            rows = _measure(opened, cluster.coordinator.pid, local, Path(scratch), batches)
    show("checkpoints", f"A checkpoint of {count} files, {batches} batches, {_PARTITIONS} partitions", rows)


def _measure(
    files: PeaceFileSystem, coordinator: int, local: Path, scratch: Path, batches: int
) -> list[dict[str, Any]]:
    tree, rows = PeaceTree(files), list[dict[str, Any]]()

    def timed(what: str, work: Callable[[], Any]) -> Any:
        own_s, theirs_s, began_s = cpu_s(os.getpid()), cpu_s(coordinator), time.perf_counter()
        done = work()
        rows.append(
            {
                "what": what,
                "seconds": time.perf_counter() - began_s,
                "client CPU s": cpu_s(os.getpid()) - own_s,
                "coordinator CPU s": cpu_s(coordinator) - theirs_s,
            }
        )
        return done

    def judge(root: str) -> None:
        verdict = verify(Inspection(tree, read_layout(tree, root)))
        assert not verdict.findings, verdict.findings
        assert verdict.batch is not None

    archive, silent = scratch / "checkpoint.zip", TransferProgress()
    timed(
        "export from this machine",
        lambda: export(LocalTree(), str(local), archive, silent, moment=False),
    )
    timed("import", lambda: restore(archive, tree, _ROOT, silent))
    timed("fork", lambda: fork(tree, _ROOT, "/checkpoints/trial"))
    timed("verify", lambda: judge("/checkpoints/trial"))
    timed("export", lambda: export(tree, _ROOT, scratch / "again.zip", silent, moment=True))
    request = RollbackRequest(_ROOT, batches // 2, None, 0.0, may_differ=True)
    rolled = timed("rollback by half", lambda: roll_back(files, request))
    assert rolled.batch == batches // 2
    timed("verify what is left", lambda: judge(_ROOT))
    return rows


def _make(root: Path, batches: int) -> int:
    """Write the checkpoint. Return the number of files."""
    contents: dict[str, bytes] = {"metadata": json.dumps({"id": str(uuid.UUID(int=1))}).encode()}
    conf = {"spark.sql.shuffle.partitions": str(_PARTITIONS)}
    planned = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": conf})
    for batch in range(batches):
        contents[f"offsets/{batch}"] = f"v1\n{planned}\n{batch}".encode()
        contents[f"commits/{batch}"] = b'v1\n{"nextBatchWatermarkMs":0}'
    store = [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": _PARTITIONS}]
    operator = {"operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"}, "stateStoreInfo": store}
    contents["state/0/_metadata/metadata"] = b"v1\n" + json.dumps(operator).encode()
    contents["state/0/0/_metadata/schema"] = _schema()
    for version in range(1, batches + 1):
        changes = _changelog(version)
        contents |= {f"state/0/{partition}/{version}.changelog": changes for partition in range(_PARTITIONS)}
    for name, data in contents.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return len(contents)


def _changelog(version: int) -> bytes:
    """Return a changelog of version 1, of about 1 kB."""
    out = bytearray()
    for number in range(10):
        key, value = f"key {version} {number}".encode(), b"value" * 20
        out += struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value
    block = bytes(out) + struct.pack(">i", -1)
    checksum = checksum_of(block)
    header = struct.pack("<8sBiiI", MAGIC, 0x15, len(block), len(block), checksum)
    return header + block + struct.pack("<8sBiiI", MAGIC, 0x15, 0, 0, 0)


def _schema() -> bytes:
    """Return a schema of version 2."""

    def text(words: str) -> bytes:
        return struct.pack(">H", len(words)) + words.encode()

    fields = text('{"type":"struct","fields":[]}')
    return text("v2") + (struct.pack(">i", 1) + fields) * 2
