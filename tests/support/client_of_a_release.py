"""A program that uses a cluster through the client of a release.

    python client_of_a_release.py URL HOME COUNT [PAUSE_S]

Either release runs it, against services of either release, so it uses only what both have. A round sends each kind
of message that changes names or data once, and reads everything back. It plays COUNT rounds, or until its standard
input ends if COUNT is 0, pauses after each, and prints the number of the round.
"""

from __future__ import annotations

import os
import select
import sys

from peacefs.client.filesystem import PeaceFileSystem

#: Larger than a small file, so that the scheduler grants it: two chunks of the smallest allowed size.
_LARGE = bytes(range(256)) * 4096 * 3 + b"the end"
_SMALL = b"all replicas are well"


def round_of(files: PeaceFileSystem, home: str) -> None:
    """Write, change, list and read files, and check every result."""
    files.mkdirs(home)
    files.write(f"{home}/small", _SMALL)
    files.write(f"{home}/large", _LARGE)
    files.write(f"{home}/empty", b"")
    with files.open_for_writing(f"{home}/flushed") as sink:
        sink.write(_SMALL)
    with files.open_for_appending(f"{home}/flushed") as sink:
        sink.write(_SMALL)
    files.rename(f"{home}/small", f"{home}/renamed")
    files.copy(f"{home}/large", f"{home}/copied")
    files.set_permission(f"{home}/renamed", 0o640)
    files.set_times(f"{home}/renamed", modified_ms=1_700_000_000_000)
    names = [each.path.rpartition("/")[2] for each in files.list(home)]
    assert names == ["copied", "empty", "flushed", "large", "renamed"]
    status = files.status(f"{home}/renamed")
    assert (status.length, status.permission, status.modified_ms) == (len(_SMALL), 0o640, 1_700_000_000_000)
    assert files.content_summary(home).files == 5
    assert files.read(f"{home}/renamed") == _SMALL
    assert files.read(f"{home}/empty") == b""
    assert files.read(f"{home}/flushed") == 2 * _SMALL
    assert files.read(f"{home}/large") == files.read(f"{home}/copied") == _LARGE
    with files.open(f"{home}/large") as source:
        source.seek(len(_LARGE) - 7)
        assert source.read() == b"the end"
    assert list(files.inspect(home))
    assert files.delete(f"{home}/copied")
    assert not files.exists(f"{home}/copied")


def main() -> None:
    url, home, count, *pause = sys.argv[1:]
    pause_s = float(*pause)
    done = 0
    with PeaceFileSystem(url, "ann") as files:
        while done < int(count) if int(count) else not select.select([sys.stdin], [], [], pause_s)[0]:
            round_of(files, f"{home}/{done}")
            done += 1
            print(done, flush=True)


if __name__ == "__main__":
    os.environ.pop("PEACEFS_CONFIG", None)
    main()
