"""A program that keeps a few hundred MB of counts in pages, is killed while it checkpoints them, and goes on.

python examples/counting_state.py [DIRECTORY] [--keys 6000000] [--seconds 12] [--kills 2]

A child counts keys, checkpoints once a second, and prints how long its batches took. It is killed with SIGKILL.
The next child loads the latest checkpoint, which contains the counts and the matching position in the input, so
nothing is lost or counted twice. It needs no cluster: the checkpoints are in a directory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa

from peacefs.state import Checkpointer, DirectoryStore, List, PageManager, UnorderedMap

BATCH = 20_000
COUNTS = pa.schema([("key", pa.int64()), ("count", pa.int64()), ("last", pa.int64())])
POSITION = pa.schema([("batches", pa.int64())])


def batch_of(position: int, keys: int) -> np.ndarray:
    """Return the input, which can be read again from any position."""
    return np.random.default_rng(position).integers(0, keys, BATCH)


def count(directory: str, keys: int, seconds: float, interval: float) -> None:
    begun = time.perf_counter()
    pages = PageManager()
    checkpointer = Checkpointer(pages, DirectoryStore(directory), "counts")
    loaded = checkpointer.load()
    counts = UnorderedMap.create(pages.page_set("counts"), COUNTS, "key")
    position = List.create(pages.page_set("position"), POSITION)
    if loaded is None:
        position.append(0)
        counts.upsert(np.arange(keys), {"count": np.zeros(keys, np.int64), "last": np.zeros(keys, np.int64)})
        print(f"began with {pages.memory_bytes >> 20} MiB of counts", flush=True)
    else:
        total = sum(int(items["count"].sum()) for items in counts.scan_numpy())
        assert total == position[0] * BATCH, "a tuple was lost, or counted twice"
        ready_s = time.perf_counter() - begun
        print(
            f"loaded checkpoint {loaded.sequence}, {pages.memory_bytes >> 20} MiB, in {ready_s:.2f} s: "
            f"{total:,} tuples, none lost, none twice",
            flush=True,
        )
    end = time.perf_counter() + seconds
    report = time.perf_counter() + interval
    took_ms: list[float] = []
    running = None
    while time.perf_counter() < end:
        begun = time.perf_counter()
        at = position[0]
        counts.aggregate(batch_of(at, keys), {"count": ("add", 1), "last": ("max", np.full(BATCH, at))})
        position[0] = at + 1
        took_ms.append((time.perf_counter() - begun) * 1000)
        if time.perf_counter() < report:
            continue
        p50, p99 = np.percentile(took_ms, (50, 99))
        said = f"{len(took_ms) * BATCH / 1e6:.1f} million tuples, a batch p50 {p50:.1f} ms, p99 {p99:.1f} ms"
        said += f", slowest {max(took_ms):.1f} ms"
        if running is not None and running.done:
            done = running.result()
            said += f"; checkpoint {done.sequence}: {done.bytes_written >> 20} MiB"
            said += f", pause {done.pause_s * 1000:.2f} ms"
        if checkpointer.idle:
            running = checkpointer.begin()
        print(said, flush=True)
        report, took_ms = time.perf_counter() + interval, []
    checkpointer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", help="of the checkpoints; by default a temporary one")
    parser.add_argument("--keys", type=int, default=6_000_000)
    parser.add_argument("--seconds", type=float, default=12, help="for which each child counts")
    parser.add_argument("--interval", type=float, default=1, help="seconds from one checkpoint to the next")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        count(options.directory, options.keys, options.seconds, options.interval)
        return
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.directory or temporary
        command = [
            sys.executable,
            __file__,
            directory,
            "--child",
            f"--keys={options.keys}",
            f"--interval={options.interval}",
        ]
        for _ in range(options.kills):
            with subprocess.Popen([*command, "--seconds=3600"], stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                checkpoints, until = 0, time.monotonic() + options.seconds
                for line in child.stdout:
                    print(line, end="")
                    checkpoints += "; checkpoint" in line
                    if checkpoints >= 2 and time.monotonic() > until:
                        child.kill()
                        print("killed with SIGKILL", flush=True)
                        break
        subprocess.run([*command, f"--seconds={options.seconds}"], check=True)


if __name__ == "__main__":
    main()
