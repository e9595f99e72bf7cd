"""Show the results of a benchmark: a table for people, and JSON for machines."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .interpreter import described, is_optimised
from .yardstick import interpreter_ms, sync_ms

RESULTS = Path(__file__).parent / "results"


def head_line() -> str:
    """Return a line that describes the machine and how fast it is now."""
    return (
        f"{described()}; {os.cpu_count()} cores; {platform.system()} {platform.release()};"
        f" a fixed loop {interpreter_ms():.1f} ms, write and sync {sync_ms():.2f} ms"
    )


def show(name: str, title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows as a table, and save them."""
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    Console(width=140).print(table)
    save(name, rows)


def save(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write the rows to `results/<name>.json`, with a description of this machine."""
    RESULTS.mkdir(exist_ok=True)
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "python_optimised": is_optimised(),
        "kernel": platform.release(),
        "fixed_loop_ms": round(interpreter_ms(), 2),
        "write_and_sync_ms": round(sync_ms(), 3),
    }
    result = {"benchmark": name, "taken_s": int(time.time()), "machine": machine, "rows": list(rows)}
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([_text(value) for value in row.values()] for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _text(value: object) -> str:
    if isinstance(value, float) and math.isnan(value):
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 100 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"
    return str(value)
