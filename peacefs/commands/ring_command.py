"""`peacefs simulate peer-ring`: recovery of rings of up to 1,000 nodes in virtual time."""

from __future__ import annotations

import dataclasses
import json
import sys

from peacefs.client.command_line.whole_table import print_whole
from peacefs.protocol.errors import Unsupported


def run_ring_scale(seeds: int | None, *, as_json: bool) -> None:
    """Raises Unsupported where an extra is missing."""
    try:
        from peacefs.dataflow.reproductions.ring_scale import run_scale
    except ImportError as error:
        raise Unsupported(f"rings need {error.name}: install peacefs[dataflow]") from None
    rows = run_scale(seeds=range(1, (1 if seeds is None else seeds) + 1))
    if as_json:
        lines = ",\n ".join(json.dumps(dataclasses.asdict(row)) for row in rows)
        sys.stdout.write(f"[{lines}]\n")
        return
    from rich.table import Table

    table = Table(title="peer-ring: r = 1, nodes that die at once, not neighbours", title_justify="left")
    for heading in ("nodes", "failures", "recovery, s", "news a failure", "copies a failure", "lost"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row.nodes),
            str(row.failures),
            f"{row.recovery_s:.2f}",
            f"{row.news_per_failure:.0f}",
            f"{row.copies_per_failure:.1f}",
            str(row.lost),
        )
    print_whole(table)
