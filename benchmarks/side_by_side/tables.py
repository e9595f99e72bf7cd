"""Rows of the tables, and the page that shows them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import markdown
from peacefs.dataflow.advice.load import QueryLoad

from .contest import Played

_BEGIN, _END = "<!-- measured -->\n", "<!-- end of what was measured -->\n"
LOADS = "The load, as `peacefs dataflow advise` measures it"
_MIB = 1 << 20
#: Columns of latencies that the page shows beside the costs, by their names on the page.
_LATENCIES_SHOWN = {"p50, ms": "before p50", "p99, ms": "before p99", "worst after a kill, ms": "during worst"}


@dataclass(frozen=True)
class Cell:
    """A query under a technique on a host."""

    query: str
    technique: str
    host: str

    @property
    def row(self) -> dict[str, Any]:
        return {"technique": self.technique, "on": self.host}


def costs(cell: Cell, played: Played) -> dict[str, Any]:
    """Return a row with the costs of a run, and the effects of its failures."""
    return {
        **cell.row,
        "µs a row": played.usage.processor_us,
        "bytes a row": played.usage.link_bytes,
        "MiB": played.usage.memory_bytes / _MIB,
        "noticed, ms": _median_ms(played.noticed_s),
        "recovered, ms": _median_ms(played.timeline.recoveries_s()),
        "lost": played.verdict.lost,
        "repeated": played.verdict.repeated,
        "wrong": played.verdict.wrong,
        "recovery": played.verdict.kind.value,
    }


def latencies(cell: Cell, played: Played) -> dict[str, Any]:
    row = cell.row
    line = played.timeline
    for phase, found in (("before", line.before), ("during", line.during), ("after", line.after)):
        row |= {f"{phase} p50": found.p50_ms, f"{phase} p99": found.p99_ms, f"{phase} worst": found.worst_ms}
    return row


def _shown(cell: Cell, played: Played) -> dict[str, Any]:
    """Return the page's row of a run: its costs and some of its latencies. The command prints all of them."""
    late = latencies(cell, played)
    return {**costs(cell, played), **{name: late[column] for name, column in _LATENCIES_SHOWN.items()}}


def heading_of(query: str) -> str:
    return query.capitalize()


def page_text(
    found: Mapping[Cell, Played], absent: Mapping[Cell, str], loads: Mapping[str, QueryLoad], machine: str
) -> str:
    """Return the tables as Markdown."""
    parts = [f"Measured by {machine}.\n"]
    for query in dict.fromkeys(cell.query for cell in (*found, *absent)):
        mine = {cell: played for cell, played in found.items() if cell.query == query}
        parts.append(f"### {heading_of(query)}\n")
        if mine:
            parts.append(markdown([_shown(cell, played) for cell, played in mine.items()]))
        missing: dict[tuple[str, str], list[str]] = {}
        for cell, why in absent.items():
            if cell.query == query:
                missing.setdefault((cell.technique, why), []).append(cell.host)
        if missing:
            names: dict[tuple[str, str], list[str]] = {}
            for (name, why), hosts in missing.items():
                names.setdefault((", ".join(hosts), why), []).append(name)
            parts.append("Not possible:\n")
            parts.append("".join(f"- {' and '.join(of)} on {on}: {why}\n" for (on, why), of in names.items()))
    if loads:
        parts.append(f"### {LOADS}\n")
        parts.append(markdown([{"query": query, **_known(load)} for query, load in loads.items()]))
    return "\n".join(parts)


def publish(page: Path, text: str) -> None:
    """Write the tables into a page, between its marks."""
    before, _, rest = page.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text(f"{before}{_BEGIN}\n{text}\n{_END}{after}")


def published(page: Path) -> dict[str, list[list[dict[str, str]]]]:
    """Return the tables of a page by heading: for each row its cells by column."""
    _, _, rest = page.read_text().partition(_BEGIN)
    measured, _, _ = rest.partition(_END)
    found: dict[str, list[list[dict[str, str]]]] = {}
    heading, columns = "", list[str]()
    for line in measured.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("|"):
            columns = []
        elif not columns:
            columns = cells
            found.setdefault(heading, []).append([])
        elif set(cells) != {"---"}:
            found[heading][-1].append(dict(zip(columns, cells, strict=True)))
    return found


def _median_ms(seconds: Sequence[float]) -> float:
    return 1000 * statistics.median(seconds) if seconds else float("nan")


def _known(load: QueryLoad) -> dict[str, Any]:
    return {name: "" if value is None else f"{value:.6g}" for name, value in asdict(load).items()}
