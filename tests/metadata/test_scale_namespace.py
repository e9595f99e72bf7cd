"""The namespace of `benchmarks namespace_scale` is sound, and its names are drawn by Zipf's law."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from benchmarks.namespace_scale import choose
from benchmarks.namespaces import empty_file, load_empty
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path


def test_loaded_files_are_found_and_the_store_is_sound(tmp_path: Path) -> None:
    load_empty(tmp_path / "metadata.sqlite", 3000, "ann")
    metadata = open_store(tmp_path / "metadata.sqlite", owner="ann")
    for number in (0, 999, 1000, 2999):
        found = namespace.status(metadata.reader(), parse_path(empty_file(number)))
        assert (found.length, found.owner) == (0, "ann")
    metadata.close()
    command = [sys.executable, "-P", "-m", "peacefs", "metadata", "check", "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_names_are_drawn_by_the_law() -> None:
    chance, size, draws = random.Random(1), 10_000, 50_000
    drawn = Counter(choose(chance, "Zipf", size) for _ in range(draws))
    assert all(0 <= number < size for number in drawn)
    # The integral of x ** -1.1 from 1 to 2 and from 1 to 101, relative to that over all ranks.
    whole = 1 - (size + 1) ** -0.1
    first, hundred = (1 - 2**-0.1) / whole, (1 - 101**-0.1) / whole
    counts = [count for _number, count in drawn.most_common()]
    assert abs(counts[0] / draws - first) < 0.01
    assert abs(sum(counts[:100]) / draws - hundred) < 0.02
    uniform = Counter(choose(chance, "uniform", 10) for _ in range(10_000))
    assert len(uniform) == 10 and max(uniform.values()) < 1200
