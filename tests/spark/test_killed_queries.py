"""Real queries over real logs are killed at random; their output must equal that of a batch query.

CI runs a few seeds. PEACEFS_QUERY_ROUNDS=n plays the first n seeds of every group of queries, each with another
log; PEACEFS_SEED=n plays one seed, as printed by a failing round.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import log_events
from support.long_runs import often
from support.query_ordeal import CHECKPOINTS, Ordeal, strikes
from typer.testing import CliRunner

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.command import application

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]

_IN_CI = ("joined", "portraits", "windows")
_EVENTS_IN_CI = often(300, 600)
_GROUPS = (
    _IN_CI,
    ("distinct", "pandas_totals", "filtered", "refiltered"),
    ("sessions", "portraits", "filtered", "refiltered"),
)
_LONG = int(os.environ.get("PEACEFS_QUERY_ROUNDS", "0"))


def rounds() -> Iterator[tuple[int, tuple[str, ...]]]:
    if not _LONG:
        yield 1, _IN_CI
        return
    seeds = [int(os.environ["PEACEFS_SEED"])] if "PEACEFS_SEED" in os.environ else range(1, _LONG + 1)
    for seed in seeds:
        for group in _GROUPS:
            yield seed, group


@pytest.mark.parametrize(
    ("seed", "queries"), list(rounds()), ids=lambda value: value if isinstance(value, int) else "-".join(value)
)
def test_queries_that_are_killed_put_out_what_a_batch_gives(
    seed: int, queries: tuple[str, ...], tmp_path: Path, worker_python: Path
) -> None:
    rng = random.Random(f"{seed} {' '.join(queries)}")
    logs = log_events.available()
    events = log_events.read_events(logs[(seed - 1) % len(logs)])
    parts, kills, others = (
        (rng.randint(8, 16), rng.randint(1, 4), rng.randint(2, 6)) if _LONG else (often(2, 4), often(1, 2), 3)
    )
    if not _LONG:
        events = events[:_EVENTS_IN_CI]
    with (
        LocalCluster(tmp_path / "cluster", 4, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        ordeal = Ordeal(cluster, files, tmp_path, worker_python, rng)
        print(f"seed {seed}")
        try:
            outcomes = ordeal.run(events, parts, list(queries), strikes(rng, kills, others))
        finally:
            print(*ordeal.told, sep="\n")
        assert ordeal.drivers_killed > 0, "a round in which no driver is killed proves nothing"
        for name, outcome in outcomes.items():
            assert outcome.streamed == outcome.batch, name
            assert outcome.batch, f"{name} has nothing to say of this log"
            judged = CliRunner().invoke(
                application,
                ["checkpoint", "verify", f"{CHECKPOINTS}/{name}", f"--coordinator={cluster.http_address}"],
            )
            assert judged.exit_code == 0, f"{name}: {judged.output}"
