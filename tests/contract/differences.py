"""Compares outcomes here with those of HDFS, and what differs with the list of what is known to. Pure."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class KnownDifference:
    """One line of the list. One that `comes_and_goes` differs in some runs only, because either side does."""

    name: str
    because: str
    comes_and_goes: bool = False


def read_known(text: str) -> dict[str, list[KnownDifference]]:
    """Return what is listed of each kind. Raises ValueError for a line without a reason."""
    known = {}
    for kind, lines in tomllib.loads(text).items():
        known[kind] = [KnownDifference(**line) for line in lines]
        for each in known[kind]:
            if not each.because.strip():
                raise ValueError(f"{each.name} is listed without a reason")
    return known


def _told(ours: str, theirs: str) -> str:
    """Say how two outcomes differ: of long ones the lines that do."""
    if "\n" not in ours + theirs:
        return f"{ours} here, {theirs} with HDFS"
    lines = difflib.ndiff(theirs.splitlines(), ours.splitlines())
    return "\n".join(["differs (- with HDFS, + here)", *(line for line in lines if line[0] in "+-")])


def verdicts(
    here: Mapping[str, str], hdfs: Mapping[str, str], known: Iterable[KnownDifference]
) -> tuple[list[str], list[str]]:
    """Return what is wrong, a sentence each, and the known differences that were seen."""
    listed = {each.name: each for each in known}
    wrong, seen = [], []
    for name in sorted(here.keys() | hdfs.keys()):
        ours, theirs = here.get(name, "not run"), hdfs.get(name, "not run")
        if ours == theirs:
            continue
        if name in listed:
            seen.append(name)
        else:
            wrong.append(f"{name}: {_told(ours, theirs)}")
    for name, each in listed.items():
        if name not in here and name not in hdfs:
            wrong.append(f"{name}: it is listed, and there is no such thing")
        elif name not in seen and not each.comes_and_goes:
            wrong.append(f"{name}: it is listed, and does not differ: take it off the list")
    return wrong, seen
