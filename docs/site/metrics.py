"""Write the tables of docs/metrics.md from what a running cluster exposes: `python docs/site/metrics.py`.

Names, types and meanings are the code's. The page keeps the order of its rows, and its own words about labels as
long as they name every label that the cluster exposes. New metrics come at the end of their table. A test compares
the page with a running cluster.
"""

from __future__ import annotations

import re
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from peacefs.client.local_cluster.cluster import LocalCluster

PAGE = Path(__file__).parents[1] / "metrics.md"
_HEADING = ("| metric | meaning |", "| --- | --- |")
#: A metric by its name as one asks for it: its type, its meaning, and the labels that are exposed now.
Exposed = Mapping[str, tuple[str, str, frozenset[str]]]


def exposed(http_address: str) -> Exposed:
    """Ask a service for its metrics."""
    with urllib.request.urlopen(f"http://{http_address}/metrics", timeout=180) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            family.documentation,
            frozenset(label for sample in family.samples for label in sample.labels) - {"le"},
        )
        for family in families
    }


def rewritten(page: str, coordinator: Exposed, datanode: Exposed) -> str:
    """Return the page with its tables as they should be."""
    both = coordinator.keys() & datanode.keys()
    sections = {
        "All services": {name: coordinator[name] for name in both},
        "Coordinator": {name: of for name, of in coordinator.items() if name not in both},
        "Datanode": {name: of for name, of in datanode.items() if name not in both},
    }
    prose = page.partition("\n## ")[0].rstrip()
    rows = {name: line for line in page.splitlines() if (name := _name(line))}
    tables = ["\n".join(("", f"## {title}", "", *_HEADING, *_rows(of, rows))) for title, of in sections.items()]
    return prose + "\n\n" + "\n".join(tables) + "\n"


def _name(line: str) -> str | None:
    """Return the metric of a row, without its labels."""
    found = re.match(r"\| `(\w+)", line)
    return found and found[1]


def _rows(of: Exposed, rows: Mapping[str, str]) -> list[str]:
    known = [name for name in rows if name in of]
    return [_row(name, of[name], rows.get(name, "")) for name in (*known, *sorted(of.keys() - rows.keys()))]


def _row(name: str, of: tuple[str, str, frozenset[str]], row: str) -> str:
    kind, meaning, labels = of
    written = re.match(r"\| `\w+\{([\w, ]+)\}`( \([^|]*\))?", row)
    listed, values = (written[1].split(", "), written[2] or "") if written else ([], "")
    if not labels <= set(listed):
        listed, values = sorted(labels), ""
    shown = f"{{{', '.join(listed)}}}" if listed else ""
    return f"| `{name}{shown}`{values} | {'Histogram: ' if kind == 'histogram' else ''}{meaning} |"


def main() -> None:
    """Start a cluster, and rewrite the page."""
    with tempfile.TemporaryDirectory() as name, LocalCluster(Path(name), datanodes=1, port=0) as cluster:
        coordinator = exposed(cluster.http_address.removeprefix("http://"))
        datanode = exposed(f"127.0.0.1:{cluster.datanodes[0].readiness.http_port}")
    PAGE.write_text(rewritten(PAGE.read_text(), coordinator, datanode))


if __name__ == "__main__":
    main()
