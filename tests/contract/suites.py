"""Run Hadoop's test suites on one cluster, in a JVM with JUnit, and read the outcome of each case."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from .toolchain import Toolchain

_SUITES_TIMEOUT_S = 1800.0
#: From best to worst. Cases of the same name with several parameters are one case; the worst outcome counts.
_OUTCOMES = ("passed", "skipped", "failed")


def run_suites(toolchain: Toolchain, uri: str, name: str, scratch: Path) -> dict[str, str]:
    """Return the outcome of each case, named `Suite.case`. Raises RuntimeError if JUnit itself fails."""
    reports = toolchain.build / f"reports-{name}"
    arguments = [
        *("execute", "--disable-banner", "--details=none", f"--reports-dir={reports}"),
        *("--select-package=contract", "--include-classname=contract.Suites.*"),
    ]
    properties = {"contract.uri": uri, "test.build.data": str(scratch), "hadoop.tmp.dir": str(scratch)}
    command = toolchain.command(
        "org.junit.platform.console.ConsoleLauncher", arguments, properties, log=f"suites-{name}"
    )
    report = reports / "TEST-junit-jupiter.xml"
    report.unlink(missing_ok=True)
    scratch.mkdir()
    with (toolchain.build / f"suites-{name}.out").open("w") as out:
        # Status 1 means failed cases, which the caller judges.
        ended = subprocess.run(
            command, stdout=out, stderr=out, timeout=_SUITES_TIMEOUT_S, cwd=scratch, check=False
        )
    if ended.returncode not in (0, 1) or not report.exists():
        raise RuntimeError(f"JUnit ended with {ended.returncode}: {out.name} says why")
    return read_report(report.read_text())


def read_report(text: str) -> dict[str, str]:
    """Return the outcome of each case of a report in JUnit's XML."""
    outcomes: dict[str, str] = {}
    for case in ElementTree.fromstring(text).iter("testcase"):
        tags = {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        suite = case.attrib["classname"].rpartition("$")[2]
        name = f"{suite}.{case.attrib['name'].partition('(')[0]}"
        outcomes[name] = max(outcome, outcomes.get(name, "passed"), key=_OUTCOMES.index)
    return outcomes
