"""Compare outcomes with HDFS's, and the differences with the list of known ones. Pure."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class KnownDifference:
    """A line of the list. If it `comes_and_goes`, it occurs only in some runs, because one side varies."""

    name: str
    because: str
    comes_and_goes: bool = False


def read_known(text: str) -> dict[str, list[KnownDifference]]:
    """Return the known differences of each kind. Raises ValueError for a line without a reason."""
    known = {}
    for kind, lines in tomllib.loads(text).items():
        known[kind] = [KnownDifference(**line) for line in lines]
        for each in known[kind]:
            if not each.because.strip():
                raise ValueError(f"{each.name} is listed without a reason")
    return known


def _told(ours: str, theirs: str) -> str:
    """Describe how two outcomes differ; of long ones, only the different lines."""
    if "\n" not in ours + theirs:
        return f"{ours} here, {theirs} with HDFS"
    lines = difflib.ndiff(theirs.splitlines(), ours.splitlines())
    return "\n".join(["differs (- with HDFS, + here)", *(line for line in lines if line[0] in "+-")])


def verdicts(
    here: Mapping[str, str], hdfs: Mapping[str, str], known: Iterable[KnownDifference]
) -> tuple[list[str], list[str]]:
    """Return the faults, one sentence each, and the known differences that occurred."""
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
