"""Run commands of `hdfs dfs` and distcp on one cluster, and normalise their output."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Container
from itertools import count
from pathlib import Path

from .toolchain import Toolchain

_SHELL_TIMEOUT_S = 1800.0
_COMMANDS = Path(__file__).parent / "shell_commands.txt"
_DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?")
#: Milliseconds since 1970.
_INSTANT = re.compile(r"\b1[78]\d{11}\b")


def read_commands(text: str) -> list[list[str]]:
    """Return the words of each line; `#` begins a comment."""
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


def run_shell(
    toolchain: Toolchain, uri: str, other: str, name: str, scratch: Path, commands: str | None = None
) -> dict[str, str]:
    """Return exit status and output of each command, by its words."""
    local = scratch / "local"
    _make_local_files(local)
    places = {"{uri}": uri, "{other}": other, "{local}": str(local)}
    wanted = read_commands(commands if commands is not None else _COMMANDS.read_text())
    script, results = scratch / "commands", scratch / "results"
    script.write_text("".join(json.dumps([_filled(word, places) for word in words]) + "\n" for words in wanted))
    settings = [
        f"fs.defaultFS={uri}",
        f"hadoop.tmp.dir={scratch / 'tmp'}",
        "mapreduce.framework.name=local",
        f"mapreduce.cluster.local.dir={scratch / 'mapred'}",
        f"mapreduce.jobtracker.staging.root.dir={scratch / 'staging'}",
    ]
    arguments = [str(script), str(results), *settings]
    command = toolchain.command("contract.ShellScript", arguments, {}, log=f"shell-{name}")
    with (toolchain.build / f"shell-{name}.out").open("w") as out:
        subprocess.run(command, stdout=out, stderr=out, timeout=_SHELL_TIMEOUT_S, cwd=local, check=True)
    outcomes: dict[str, str] = {}
    for words, line in zip(wanted, results.read_text().splitlines(), strict=True):
        told = json.loads(line)
        said = "".join(f"\n  {each}" for each in normal(told["out"] + told["err"], places).splitlines())
        outcomes[_unique(shlex.join(words), outcomes)] = f"status {told['status']}{said}"
    return outcomes


def normal(said: str, places: dict[str, str]) -> str:
    """Return output without addresses, dates, and sizes of the file system."""
    for placeholder, value in places.items():
        said = said.replace(value, placeholder).replace(value.rpartition("//")[2], placeholder)
    said = _INSTANT.sub("TIME", _DATE.sub("DATE", said))
    lines = [re.sub(r"\s+", " ", line).strip() for line in said.splitlines()]
    if any(line.startswith("Filesystem Size Used") for line in lines):
        lines = [re.sub(r"\d[\d.]*( [KMGT])?", "N", line) for line in lines]
    return "\n".join(line for line in lines if line)


def _unique(name: str, taken: Container[str]) -> str:
    """Return the name, with a number if it is taken: a command may run twice."""
    if name not in taken:
        return name
    return next(numbered for n in count(2) if (numbered := f"{name} ({n})") not in taken)


def _filled(word: str, places: dict[str, str]) -> str:
    for placeholder, value in places.items():
        word = word.replace(placeholder, value)
    return word


def _make_local_files(local: Path) -> None:
    local.mkdir(parents=True)
    (local / "small").write_text("one\ntwo\nthree\n")
    (local / "empty").write_text("")
    (local / "large").write_bytes(bytes(range(256)) * 8192)
    (local / "tree").mkdir()
    for number in range(3):
        (local / "tree" / f"part-{number}").write_text(f"{number}\n" * 100)
