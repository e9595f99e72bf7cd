"""`--help` of every group fits a terminal of 80 columns: no summary is cut."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from peacefs.client.command_line.examples import examples_of
from peacefs.command import application

_GROUPS = sorted(group.name for group in application.registered_groups if isinstance(group.name, str))


@pytest.mark.parametrize("group", ["", *_GROUPS])
def test_help_shows_every_summary_whole(group: str) -> None:
    shown = CliRunner().invoke(application, [*group.split(), "--help"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert shown.exit_code == 0
    cut = [line for line in shown.output.splitlines() if line.endswith("...") and "[ARGS]" not in line]
    assert cut == []


def test_help_covers_the_groups_that_there_are() -> None:
    assert {"checkpoint", "metadata", "datanodes"} <= set(_GROUPS)
    assert isinstance(application, typer.Typer)


def _commands(command: Any, name: str = "") -> Iterator[str]:
    if not isinstance(command, TyperGroup) or (name and command.invoke_without_command):
        yield name
    for each, below in getattr(command, "commands", {}).items():
        yield from _commands(below, f"{name} {each}".strip())


_TREE: Any = get_command(application)
_COMMANDS = sorted(_commands(_TREE))


@pytest.mark.parametrize("command", _COMMANDS)
def test_help_of_every_command_ends_with_examples_that_it_takes(command: str) -> None:
    shown = CliRunner().invoke(application, [*command.split(), "--help"], env={"COLUMNS": "80"})
    _, found, lines = shown.output.partition("Examples:\n")
    examples = examples_of(command)
    assert found
    assert [line.strip() for line in lines.splitlines() if line] == [f"peacefs {each}" for each in examples]
    for example in examples:
        assert f"{example} ".startswith(f"{command} ")
        # Parsed with all values checked, but not run.
        parsed, rest = _TREE, shlex.split(example)
        context = parsed.make_context("peacefs", rest)
        while isinstance(parsed, TyperGroup) and context._protected_args:
            name, parsed, rest = parsed.resolve_command(context, [*context._protected_args, *context.args])
            context = parsed.make_context(name, rest, parent=context)
