"""A replica that rots on the disk: a client of HDFS sees it, or is told."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from oracles.hdfs_transfer import ERROR, SUCCESS, sums
from support.transfer_cluster import TransferCluster

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster


@pytest.mark.evidence("checksums-hold")
@pytest.mark.parametrize("length", [1000, 400_000])
def test_a_bit_that_flips_on_the_disk_does_not_pass(tmp_path: Path, length: int) -> None:
    data = random.Random(length).randbytes(length)
    with (
        LocalCluster(tmp_path, datanodes=1, port=0) as cluster,
        PeaceFileSystem(cluster.http_address, user="alice") as files,
    ):
        transfers = TransferCluster(cluster, files, "/")
        files.write("/rotten", data)
        with transfers.reading("/rotten") as (client, block, known):
            assert client.read(block, 0, known) == data
            _flip(tmp_path / "datanode-1", data[length // 2 : length // 2 + 32])
            answer = client.ask_to_read(block, 0, known)
            if answer[1] != [SUCCESS]:
                assert answer[1] == [ERROR]
                assert b"checksum" in answer[5][0]
                return
            wrong, came = 0, b""
            while len(came) < length:
                _header, packed, piece = client.packet()
                wrong += packed != sums(piece, 65536)
                came += piece
            assert came != data
            assert wrong == 1


def _flip(directory: Path, known: bytes) -> None:
    """Flip a bit of the file that contains these bytes."""
    for file in directory.rglob("*"):
        if file.is_file() and (at := file.read_bytes().find(known)) >= 0:
            with file.open("r+b") as opened:
                opened.seek(at)
                opened.write(bytes([known[0] ^ 1]))
            return
    raise AssertionError("no file has these bytes")
