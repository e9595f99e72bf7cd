"""Commands that users of `hdfs dfs` type, compared with the answers of Hadoop 3.5 on a real HDFS."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from oracles import hdfs_commands
from typer.testing import CliRunner

from peacefs.client.command_line.application import application
from peacefs.client.filesystem import PeaceFileSystem

pytestmark = pytest.mark.cluster

#: The output of peacefs where it differs on purpose, with the reason.
_OURS = {
    # Java's message also contains the URI.
    "-touchz /r/none/x": "status 1\n  touchz: `/r/none/x': No such file or directory",
    # `find` and `ls` do not have these options; an unknown option is a usage error.
    "-find /r -name 'part-*' -o -name small": "status 2",
    "-find /r/tree -type f": "status 2",
    "-ls -C -d /r/tree": "status 2",
    # The order of options does not matter, so `-print` prints what matches all patterns.
    "-find /r/tree -print -name below": "status 0\n  /r/tree/below",
    "-appendToFile '{local}/none' /r/small": "status 1\n  appendToFile: {local}/none: No such file or directory",
    "-appendToFile '{local}/small' /r/tree": "status 1\n  appendToFile: `/r/tree': Is a directory",
    "-appendToFile '{local}/tree' /r/joined": "status 1\n  appendToFile: {local}/tree: Is a directory",
    # `-` means standard output, as it means standard input for `put`. HDFS makes a file with this name.
    "-get /r/small -": "status 0\n  one\n  two\n  three\n  one\n  two\n  three",
    "-get /r/small /r/joined -": "status 0\n" + "\n".join(["  one\n  two\n  three"] * 4),
    "-get /r/tree -": "status 1\n  get: `/r/tree': Is a directory",
    "-get /r/none -": "status 1\n  get: `/r/none': Is a directory",
}


def _make_local_files(local: Path) -> None:
    (local / "small").write_text("one\ntwo\nthree\n")
    (local / "empty").write_text("")
    (local / "large").write_bytes(bytes(range(256)) * 8192)
    (local / "tree").mkdir()


def _normal(said: str, home: str, address: str, local: Path) -> str:
    """Normalise output: drop HDFS's addresses, dates, owners and sizes of the file system."""
    said = said.replace(str(local), "{local}").replace(home, "").replace("peacefs: ", "").replace(address, "{uri}")
    said = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "DATE", said)
    said = re.sub(r"\.\.\.[\s.]*(WARNING: the waiting time.*)?[\s.]*done", "... done", said)
    lines = [re.sub(r"\s+", " ", line).strip() for line in said.splitlines()]
    if any(line.startswith("Filesystem Size Used") for line in lines):
        lines = [re.sub(r"\d[\d.]*( [KMGT])?", "N", line) for line in lines]
    return "".join(f"\n  {re.sub('(alice|root) supergroup', 'OWNER', line)}" for line in lines if line)


def test_commands_say_what_hdfs_dfs_says(
    environment: dict[str, str],
    files: PeaceFileSystem,
    home: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    _make_local_files(tmp_path)
    recorded = hdfs_commands.recorded()
    seen: dict[str, int] = {}
    wrong = []
    for words in hdfs_commands.commands():
        name = shlex.join(words)
        seen[name] = seen.get(name, 0) + 1
        key = name if seen[name] == 1 else f"{name} ({seen[name]})"
        status, _, output = _OURS.get(key, recorded[key]).partition("\n")
        expected = status + _normal(output, home, files.address, tmp_path)
        given = [words[0].removeprefix("-"), *words[1:]]
        given = [re.sub(r"^/(?=r\b)", f"{home}/", word).replace("{local}", str(tmp_path)) for word in given]
        result = CliRunner().invoke(application, given, env=environment, prog_name="peacefs")
        said = "" if result.exit_code == 2 else result.stdout + result.stderr
        got = f"status {result.exit_code}{_normal(said, home, files.address, tmp_path)}"
        # HDFS sets the replication of parents first.
        if sorted(got.splitlines()) != sorted(expected.splitlines()) if "setrep" in key else got != expected:
            wrong.append(f"{key}\n expected {expected}\n got {got}")
    assert not wrong, "\n".join(wrong)


def test_tail_follows_what_is_appended_until_it_is_interrupted(
    environment: dict[str, str], files: PeaceFileSystem, home: str
) -> None:
    files.write(f"{home}/log", b"x" * 2000 + b"\nfirst\n")
    command = [sys.executable, "-m", "peacefs", "tail", "-f", f"{home}/log"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"x" * 1017 + b"\n"
            assert process.stdout.readline() == b"first\n"
            with files.open_for_appending(f"{home}/log") as sink:
                sink.write(b"second\n")
                sink.hflush()
                assert process.stdout.readline() == b"second\n"
            files.write(f"{home}/log", b"replaced\n", overwrite=True)
            assert process.stdout.readline() == b"replaced\n"
            process.terminate()
            assert process.wait(20) == 143
        finally:
            process.kill()
