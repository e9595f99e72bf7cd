"""Scenario files: commands, and below each group of them what they print (as etcd/raft's `testdata`).

    # A comment.
    command argument key=value
    ----
    what it prints

A blank line ends a group. PEACEFS_REWRITE=1 writes what is printed now into the file, for `git diff` to show.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

SCENARIOS: Final = Path(__file__).parent.parent / "scenarios"
_LINE: Final = "----"


class Command(NamedTuple):
    """One line: a verb, its arguments, and its options."""

    verb: str
    arguments: list[str]
    options: dict[str, str]

    def names(self, option: str) -> tuple[str, ...]:
        """Return the comma-separated values of an option."""
        return tuple(name for name in self.options.get(option, "").split(",") if name)

    def number(self, option: str, default: int = 0) -> int:
        return int(self.options.get(option, default))


def scenario_files(subject: str) -> list[Path]:
    """Return the scenarios of a subject, a folder under `tests/scenarios`."""
    found = sorted((SCENARIOS / subject).glob("*.txt"))
    assert found, f"there is no scenario in {SCENARIOS / subject}"
    return found


def check_scenario(file: Path, run: Callable[[Command], list[str]]) -> None:
    """Run a scenario and compare what each group of commands prints with what the file says."""
    text = file.read_text()
    played = "\n\n".join(_played(text, run)) + "\n"
    if os.environ.get("PEACEFS_REWRITE") == "1":
        file.write_text(played)
    assert played == text, f"{file.name} prints something else; PEACEFS_REWRITE=1 writes it into the file"


def _played(text: str, run: Callable[[Command], list[str]]) -> Iterator[str]:
    for group in text.rstrip("\n").split("\n\n"):
        lines = group.split("\n")
        commands = lines[: lines.index(_LINE)] if _LINE in lines else lines
        printed = [line for each in commands if not each.startswith("#") for line in run(_command(each))]
        if all(each.startswith("#") for each in commands):
            yield "\n".join(commands)
        else:
            yield "\n".join([*commands, _LINE, *(printed or ["nothing"])])


def _command(line: str) -> Command:
    verb, *words = line.split()
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return Command(verb, [word for word in words if "=" not in word], options)
