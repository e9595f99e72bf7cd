"""The list of known differences from HDFS is exact: both new and vanished differences fail `make contract`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from contract.differences import KnownDifference, read_known, verdicts
from contract.shell import normal, read_commands
from contract.suites import read_report

_CONTRACT = Path(__file__).parent.parent / "contract"
KNOWN = [KnownDifference("Open.dir", "it is refused earlier")]


def test_difference_that_is_listed_is_none_to_fail_for() -> None:
    assert verdicts({"Open.dir": "passed"}, {"Open.dir": "failed"}, KNOWN) == ([], ["Open.dir"])


@pytest.mark.parametrize(
    ("here", "hdfs", "words"),
    [
        ({"Open.dir": "passed", "Seek": "failed"}, {"Open.dir": "failed", "Seek": "passed"}, "Seek: failed here"),
        ({"Open.dir": "passed"}, {"Open.dir": "failed", "Seek": "passed"}, "Seek: not run here, passed with HDFS"),
        ({"Open.dir": "passed"}, {"Open.dir": "passed"}, "Open.dir: it is listed, and does not differ"),
        ({"Seek": "failed"}, {"Seek": "failed"}, "Open.dir: it is listed, and there is no such thing"),
    ],
)
def test_difference_that_is_new_or_gone_is_said(here: dict[str, str], hdfs: dict[str, str], words: str) -> None:
    wrong, _ = verdicts(here, hdfs, KNOWN)
    assert len(wrong) == 1
    assert wrong[0].startswith(words)


def test_difference_that_comes_and_goes_may_do_either() -> None:
    known = [KnownDifference("Open.dir", "HDFS is not always quick enough", comes_and_goes=True)]
    for theirs in ("passed", "failed"):
        assert verdicts({"Open.dir": "passed"}, {"Open.dir": theirs}, known)[0] == []


def test_long_outputs_that_differ_are_said_by_their_lines() -> None:
    wrong, _ = verdicts({"-ls /": "status 0\n  a\n  b"}, {"-ls /": "status 0\n  a\n  c"}, [])
    assert wrong == ["-ls /: differs (- with HDFS, + here)\n-   c\n+   b"]


def test_list_of_differences_has_reasons_and_names_what_is_run() -> None:
    known = read_known((_CONTRACT / "known_differences.toml").read_text())
    assert set(known) == {"cases", "cases_over_hdfs", "cases_over_webhdfs", "commands", "refusals"}
    with pytest.raises(ValueError, match="without a reason"):
        read_known('[[cases]]\nname = "Open.dir"\nbecause = " "')


def test_commands_are_words_and_comments() -> None:
    assert read_commands("# ls\n-ls -h '/a b'\n\n-put {local}/x /\n") == [
        ["-ls", "-h", "/a b"],
        ["-put", "{local}/x", "/"],
    ]
    assert len(read_commands((_CONTRACT / "shell_commands.txt").read_text())) > 200


def test_output_is_compared_without_addresses_dates_and_sizes_of_the_file_system() -> None:
    places = {"{uri}": "webhdfs://127.0.0.1:9870", "{local}": "/t/local"}
    said = "-rw-r--r--   3 a b  14 2026-01-02 03:04 webhdfs://127.0.0.1:9870/s\n\nat 127.0.0.1:9870: /t/local\n"
    assert normal(said, places) == "-rw-r--r-- 3 a b 14 DATE {uri}/s\nat {uri}: {local}"
    assert normal("Filesystem Size Used\nx 12.5 G 3 K", {}) == "Filesystem Size Used\nx N N"


def test_cases_of_one_name_count_as_their_worst() -> None:
    report = """<testsuite>
        <testcase classname="contract.Suites$Seek" name="a()"/>
        <testcase classname="contract.Suites$Seek" name="a()[2]"><failure/></testcase>
        <testcase classname="contract.Suites$Seek" name="b()"><skipped/></testcase>
        </testsuite>"""
    assert read_report(report) == {"Seek.a": "failed", "Seek.b": "skipped"}


def test_contract_is_skipped_with_a_word_where_maven_is_not_installed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "contract"],
        cwd=_CONTRACT.parent,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("the contract tests are skipped: mvn is not installed")
