"""Alert rules and the dashboard use only existing metrics and commands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from peacefs.command import application

_ROOT = Path(__file__).parent.parent
_PROMETHEUS = _ROOT / "deploy" / "prometheus"
_DASHBOARD = _ROOT / "deploy" / "grafana" / "peacefs.json"
_SERIES = ("_bucket", "_count", "_sum")
#: Labels that Prometheus adds, and a series that it creates itself.
_LABELS_OF_PROMETHEUS = {"instance", "job", "le"}
_OWN_SERIES = {"up"}
_NAME = re.compile(r"\b((?:peacefs|process)_\w+|up)\b(?:\{([^}]*)\})?")
_FUNCTIONS = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")


def metrics_of_the_page() -> Mapping[str, set[str]]:
    """Return the labels of each metric on the page. Another test compares the page with a running cluster."""
    found = {}
    page = (_ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)(?:\{([\w, ]+)\})?`[^|]*\| (Histogram)?", page, re.MULTILINE)
    for name, labels, histogram in rows:
        found[name] = {*re.findall(r"\w+", labels), *(["le"] if histogram else [])}
    return found


def rules() -> Iterator[Mapping[str, str]]:
    for group in yaml.safe_load((_PROMETHEUS / "alerts.yml").read_text())["groups"]:
        yield from group["rules"]


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in json.loads(_DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("of", "expression"), list(expressions()))
def test_expression_names_metrics_and_labels_that_are_exposed(of: str, expression: str) -> None:
    known = metrics_of_the_page()
    labels: set[str] = set()
    named = _NAME.findall(expression)
    assert named, f"{of} names no metric"
    for name, matchers in named:
        if name in _OWN_SERIES:
            continue
        base = next((name.removesuffix(end) for end in _SERIES if name.endswith(end)), name)
        metric = name if name in known else base
        assert metric in known, f"{of} names {name}, which is no metric"
        labels |= known[metric]
        used = set(re.findall(r"(\w+)\s*=~?", matchers))
        assert used <= known[metric] | _LABELS_OF_PROMETHEUS, f"{of}: {name} has no label {used - known[metric]}"
    for grouped in _FUNCTIONS.findall(expression):
        by = {label.strip() for label in grouped.split(",")}
        assert by <= labels | _LABELS_OF_PROMETHEUS, f"{of} groups by {by - labels}"


def test_alert_says_what_to_do_with_commands_that_there_are() -> None:
    commands = get_command(application)
    for rule in rules():
        text = rule["annotations"]["description"]  # type: ignore[index]
        assert text.endswith("."), rule["alert"]
        for written in re.findall(r"`peacefs ([^`]*)`", text):
            command = commands
            for word in written.split():
                if word.startswith(("-", "/")) or not hasattr(command, "commands"):
                    break
                assert word in command.commands, f"{rule['alert']} names peacefs {written}"
                command = command.commands[word]


def test_dashboard_has_panels_that_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(_DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


def test_promtool_accepts_the_rules_and_plays_them() -> None:
    beside = shutil.which("promtool", path=str(Path(sys.executable).parent))
    promtool = beside or shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool: ./setup.sh brings it where Debian's packages are reachable")
    for words in ("check config prometheus.yml", "check rules alerts.yml", "test rules alerts_test.yml"):
        done = subprocess.run(
            [promtool, *words.split()], cwd=_PROMETHEUS, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
