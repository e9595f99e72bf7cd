"""`make contract`: exits with 0 if peacefs differs from HDFS only as listed, else with 1."""

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


def main() -> int:
    known = read_known(_KNOWN.read_text())
    try:
        toolchain = Toolchain(_ROOT / "build" / "contract")
    except MissingTool as missing:
        _say(f"the contract tests are skipped: {missing}")
        return 0
    _say("getting Hadoop's jars, compiling")
    toolchain.prepare()
    with tempfile.TemporaryDirectory(prefix="peacefs-contract-") as made:
        scratch = Path(made)
        places = {name: scratch / name for name in ("here", "hdfs")}
        with (
            running_peacefs(scratch / "peacefs") as (here, here_by_rpc),
            running_hdfs(toolchain, scratch / "namenode") as (hdfs, hdfs_by_rpc),
        ):
            for place in places.values():
                place.mkdir()
            _say(f"shell: commands of `hdfs dfs` and distcp, at {here} and {hdfs}")
            commands = [
                run_shell(toolchain, uri, other, name, places[name] / "shell")
                for name, uri, other in (("here", here, hdfs), ("hdfs", hdfs, here))
            ]
            _say("suites: Hadoop's contract tests")
            cases = []
            _say("rights: what users may, and what is made on the way")
            rights = [_rights(uri) for uri in (here, hdfs)]
            _say("refusals: requests that may be refused for several reasons")
            refusals = [_refusals(uri) for uri in (here, hdfs)]
            for name, uri in (("here", here), ("hdfs", hdfs)):
                (places[name] / "suites").mkdir()
                cases.append(run_suites(toolchain, uri, name, places[name] / "suites"))
            _say(f"suites: the same over HDFS's own protocol, at {here_by_rpc} and {hdfs_by_rpc}")
            cases_by_rpc = []
            for name, uri in (("here-rpc", here_by_rpc), ("hdfs-rpc", hdfs_by_rpc)):
                (scratch / name).mkdir()
                cases_by_rpc.append(run_suites(toolchain, uri, name, scratch / name))
    wrong = _judge("commands", commands, known.get("commands", []))
    wrong += _judge("rights", [rights[0], hdfs_rights.with_masked_parents(rights[1])], known.get("rights", []))
    wrong += _judge("refusals", refusals, known.get("refusals", []))
    wrong += _judge("cases", cases, known.get("cases", []))
    wrong += _judge("cases over hdfs://", cases_by_rpc, known.get("cases_by_rpc", []))
    return 1 if wrong else 0


def _rights(uri: str) -> dict[str, str]:
    with closing(hdfs_rights.WebHdfs(uri)) as files:
        return hdfs_rights.play(files, "/rights")


def _refusals(uri: str) -> dict[str, str]:
    with closing(hdfs_rights.WebHdfs(uri)) as files:
        return hdfs_refusals.play(files, "/refusals")


def _judge(what: str, outcomes: list[dict[str, str]], known: Sequence[KnownDifference]) -> int:
    here, hdfs = outcomes
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
    raise SystemExit(main())
