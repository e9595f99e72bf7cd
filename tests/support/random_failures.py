"""Draw failures of every kind for a seeded run."""

from __future__ import annotations

import random

from support.long_runs import often

from benchmarks.dataflows.failures import CutLink, Failure, Hang, Kill

#: Number of different inputs for seeded runs.
_ROWS = often(3, 1000)
NODES = ("node-1", "node-2", "node-3")


def rows_seed(seed: int) -> int:
    """Return the seed of a run's input. Few inputs exist, so that runs can share their failure-free run."""
    return 1 + seed % _ROWS


def random_failures(chance: random.Random, count: int) -> list[Failure]:
    """Return up to four failures before steps of a run of `count`, after its end, or during a recovery."""
    failures: list[Failure] = []
    for _ in range(chance.randint(1, 4)):
        step = chance.randrange(count * 2)
        # Draw all three, so that a seed means the same run whichever is chosen.
        killed = Kill(step, chance.choice(NODES), back_after_s=chance.uniform(0.01, 2))
        hung = Hang(step, chance.choice(NODES), for_s=chance.uniform(0.01, 3))
        one, other = chance.sample([*NODES, "edge"], 2)
        drawn: list[Failure] = [killed, hung, CutLink(step, (one, other))]
        failures.append(chance.choice(drawn))
    return failures
