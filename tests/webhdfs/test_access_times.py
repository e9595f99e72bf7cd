"""Access times: a read updates them with HDFS's precision, and waits for no commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.protocol.tokens import Signer

from .conftest import NameSide

HOUR_MS = 3_600_000


@contextlib.contextmanager
def side_with(directory: Path, signer: Signer, precision_s: float) -> Iterator[NameSide]:
    made = NameSide(directory, signer, Callers("hdfs"), access_time_precision_s=precision_s)
    with contextlib.closing(made), made.served:
        made.register("dn-1", 9866, 9864)
        yield made


def accessed_ms_after_a_read(side: NameSide, accessed_ms: int) -> int:
    """Read a file with the given access time. Return its access time after all updates are written."""
    with PeaceFileSystem(f"http://127.0.0.1:{side.port}", user="ann") as files:
        files.open_for_writing("/f", overwrite=True).close()
        files.set_times("/f", accessed_ms=accessed_ms)
        assert files.read("/f") == b""
        side.served.run(side.context.access_times.write())
        return files.status("/f").accessed_ms


@pytest.mark.parametrize(("precision_s", "moves"), [(0.0, False), (3600.0, True), (1e9, False)])
def test_access_time_moves_when_it_is_older_than_the_precision(
    tmp_path: Path, signer: Signer, precision_s: float, moves: bool
) -> None:
    long_ago_ms = 1_700_000_000_000
    with side_with(tmp_path, signer, precision_s) as side:
        found_ms = accessed_ms_after_a_read(side, long_ago_ms)
        assert (found_ms > long_ago_ms + HOUR_MS) == moves


def test_access_time_of_a_file_that_is_gone_is_dropped(tmp_path: Path, signer: Signer) -> None:
    with (
        side_with(tmp_path, signer, 3600.0) as side,
        PeaceFileSystem(f"http://127.0.0.1:{side.port}", user="ann") as files,
    ):
        files.open_for_writing("/f").close()
        files.set_times("/f", accessed_ms=0)
        files.read("/f")
        files.delete("/f")
        side.served.run(side.context.access_times.write())
        assert not files.exists("/f")
