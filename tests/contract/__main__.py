"""`make contract`: exits with 0 if peacefs differs from HDFS only as listed, else with 1.

`python -m contract hdfs` plays one protocol only: `hdfs` or `webhdfs`.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from oracles import hdfs_refusals, hdfs_rights

from .clusters import running_hdfs, running_peacefs
from .differences import KnownDifference, read_known, verdicts
from .shell import run_shell
from .suites import run_suites
from .toolchain import MissingTool, Toolchain

_ROOT = Path(__file__).parent.parent.parent
_KNOWN = Path(__file__).parent / "known_differences.toml"
_HTTP = "webhdfs"
_DOORS = (_HTTP, "hdfs")
#: Send every tenth request, because each needs its own tree. Tests compare all of them
#: with the answers that HDFS gave (`tests/webhdfs`).
_REFUSALS_PART = 10


def main(arguments: Sequence[str]) -> int:
    doors = arguments or _DOORS
    if unknown := set(doors) - set(_DOORS):
        _say(f"{', '.join(sorted(unknown))}: only {' and '.join(_DOORS)} can be chosen")
        return 2
    known = read_known(_KNOWN.read_text())
    try:
        toolchain = Toolchain(_ROOT / "build" / "contract")
    except MissingTool as missing:
        _say(f"the contract tests are skipped: {missing}")
        return 0
    _say("getting Hadoop's jars, compiling")
    toolchain.prepare()
    wrong = 0
    for door in doors:
        with tempfile.TemporaryDirectory(prefix="peacefs-contract-") as made:
            scratch = Path(made)
            with (
                running_peacefs(scratch / "peacefs") as here,
                running_hdfs(toolchain, scratch / "namenode") as hdfs,
            ):
                found = _played(toolchain, door, (here[door], hdfs[door]), scratch)
        for what, outcomes in found.items():
            listed = [*known.get(what, []), *known.get(f"{what}_over_{door}", [])]
            wrong += _judge(f"{what} over {door}://", outcomes, listed)
    return 1 if wrong else 0


def _played(
    toolchain: Toolchain, door: str, uris: tuple[str, str], scratch: Path
) -> dict[str, list[dict[str, str]]]:
    """Return the outcomes of peacefs and of HDFS over a protocol, by their kind."""
    found: dict[str, list[dict[str, str]]] = {}
    _say(f"shell: commands of `hdfs dfs` and distcp, at {' and '.join(uris)}")
    sides = (("here", *uris), ("hdfs", *reversed(uris)))
    found["commands"] = [
        run_shell(toolchain, uri, other, f"{name}-{door}", scratch / f"shell-{name}") for name, uri, other in sides
    ]
    if door == _HTTP:
        _say("rights: what users may, and what is made on the way")
        here, hdfs = (_rights(uri) for uri in uris)
        found["rights"] = [here, hdfs_rights.with_masked_parents(hdfs)]
        _say("refusals: requests that may be refused for several reasons")
        found["refusals"] = [_refusals(uri) for uri in uris]
    _say("suites: Hadoop's contract tests")
    found["cases"] = [
        run_suites(toolchain, uri, f"{name}-{door}", scratch / f"suites-{name}") for name, uri, _other in sides
    ]
    return found


def _rights(uri: str) -> dict[str, str]:
    with closing(hdfs_rights.WebHdfs(uri)) as files:
        return hdfs_rights.play(files, "/rights")


def _refusals(uri: str) -> dict[str, str]:
    with closing(hdfs_rights.WebHdfs(uri)) as files:
        return hdfs_refusals.play(files, "/refusals", part=_REFUSALS_PART)


def _judge(what: str, outcomes: list[dict[str, str]], known: Sequence[KnownDifference]) -> int:
    here, hdfs = outcomes
    if what.startswith("refusals"):
        known = [each for each in known if each.name in here]
    wrong, seen = verdicts(here, hdfs, known)
    for sentence in wrong:
        _say(sentence)
    counts = [Counter(each.values()) for each in outcomes]
    passed = (
        f", {_counted(counts[0])} here and {_counted(counts[1])} with HDFS" if what.startswith("cases") else ""
    )
    _say(f"{len(here)} {what}{passed}: {len(seen)} known differences, {len(wrong)} others")
    return len(wrong)


def _counted(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
