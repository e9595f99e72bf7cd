"""The first commands of newcomers and operators, judged by GNU tools and arithmetic."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from peacefs.client.command_line.application import application
from peacefs.client.command_line.descent import Descent, descend
from peacefs.client.command_line.examples import examples_of
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.coordinator.namespace.paths import path_depth_max

Run = Callable[..., Result]
_EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **changes: str) -> Result:
        result = CliRunner().invoke(application, arguments, env=environment | changes, prog_name="peacefs")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return run


def test_a_descent_is_deeper_than_the_stack_and_raises_where_it_was_begun() -> None:
    seen: list[int] = []

    def down(level: int) -> Descent:
        if level == 5000:
            raise KeyError(level)
        try:
            yield down(level + 1)
        except KeyError:
            seen.append(level)
            if level % 2:
                raise
        else:
            seen.append(-level)

    descend(down(0))
    # The fault of the innermost step passes through an odd level and stops at the even level above it.
    assert seen == [4999, 4998, *(-level for level in range(4997, -1, -1))]


@pytest.mark.cluster
def test_ls_goes_as_deep_as_trees_may_be(run: Run, files: PeaceFileSystem) -> None:
    levels = path_depth_max - 1
    files.mkdirs("/listed" + "/d" * levels)
    listed = run("ls", "-R", "--json", "/listed")
    assert listed.exit_code == 0
    paths = [json.loads(line)["path"] for line in listed.stdout.splitlines()]
    assert paths == ["/listed" + "/d" * level for level in range(1, levels + 1)]


@pytest.mark.cluster
@pytest.mark.long("thousands of calls")
@pytest.mark.timeout(900)
def test_transfers_and_changes_go_as_deep_as_trees_may_be(
    run: Run, files: PeaceFileSystem, tmp_path: Path
) -> None:
    deepest = "tree/" + "/".join("d" * (path_depth_max - 4))
    # Path.mkdir and rmtree are recursive, too.
    subprocess.run(["mkdir", "-p", deepest], check=True)
    (tmp_path / deepest / "f").write_text("deep")
    assert run("put", "tree", "/deep").exit_code == 0
    assert run("get", "/deep", "back").exit_code == 0
    same = subprocess.run(["diff", "-r", "tree", "back"], capture_output=True, text=True, check=False)
    assert (same.returncode, same.stdout) == (0, "")
    for command in ("chmod -R 700", "setrep 1", "count", "du", "fsck", "getfacl -R", "getfattr -R -d", "rm -r"):
        assert run(*command.split(), "/deep").exit_code == 0, command
    subprocess.run(["rm", "-rf", "tree", "back"], check=True)


@pytest.mark.cluster
@pytest.mark.parametrize("missing", ["no-such", "no-such-*", "directory/no-such", "file/below"])
def test_forced_rm_succeeds_where_gnu_rm_does(
    missing: str, run: Run, files: PeaceFileSystem, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    files.write("/gnu/file", b"", overwrite=True)
    files.mkdirs("/gnu/directory")
    for options in ([], ["-f"]):
        gnu = subprocess.run(["rm", *options, missing], capture_output=True, text=True, check=False)
        here = run("rm", *options, f"/gnu/{missing}")
        assert (here.exit_code, bool(here.stderr)) == (gnu.returncode, bool(gnu.stderr)), options


@pytest.mark.cluster
def test_names_reach_no_terminal_as_commands_and_json_is_exact(run: Run, files: PeaceFileSystem) -> None:
    name = "a\x1b]2J\x07b\nc\td\x9be\u202efdp.exe\u2066"
    files.write(f"/odd/{name}", b"12")
    files.xattrs.set(f"/odd/{name}", "user.odd", b"1")
    shown = "a\\u001b]2J\\u0007b\\nc\\td\\u009be\\u202efdp.exe\\u2066"
    path = f"/odd/{name}"
    commands = [
        *(["ls", "/odd"], ["ls", "-R", "/odd"], ["stat", "%n", path], ["du", "/odd"], ["count", path]),
        *(
            ["fsck", "/odd"],
            ["getfacl", path],
            ["getfattr", "-d", path],
            ["setrep", "1", path],
            ["rm", path + "x"],
        ),
        *(["cat", path + "x"], ["mv", path + "x", "/"], ["cp", path + "x", "/"], ["get", path + "x", "."]),
        *(["put", name, "/odd/x"], ["chmod", "700", path + "x"], ["mkdir", path], ["test", "-e", path]),
    ]
    for command in commands:
        said = run(*command)
        text = said.stdout + said.stderr
        assert not set(text) & {"\x1b", "\x07", "\x9b", "\t", "\u202e", "\u2066"}, command
        assert command[0] in ("test", "stat", "fsck") or shown in text, command
    assert json.loads(run("ls", "--json", "/odd").stdout)["path"] == path
    assert json.loads(run("du", "--json", path).stdout)["path"] == path
    assert shown in run("rm", path).stdout


@pytest.mark.cluster
def test_examples_of_help_do_what_they_show(run: Run, files: PeaceFileSystem, tmp_path: Path) -> None:
    """Run the examples one after the other, as the user who runs the cluster."""
    files.write("/data/part-0", b"0")
    files.mkdirs("/data/old")
    (tmp_path / "logs").mkdir()
    for local in ("part-0", "logs/today"):
        (tmp_path / local).write_text(local)
    files.delete("/data/part-0")
    commands = [
        *(
            "mkdir",
            "put",
            "ls",
            "stat",
            "cat",
            "tail",
            "test",
            "get",
            "mv",
            "cp",
            "count",
            "du",
            "setrep",
            "chmod",
        ),
        *("chmod", "chown", "chgrp", "setfacl", "getfacl", "setfattr", "getfattr", "fsck", "report", "quota set"),
        *("quota clear", "snapshot allow", "snapshot create", "snapshot ls", "snapshot diff", "snapshot rename"),
        *("snapshot rm", "snapshot disallow", "rm", "datanodes ls", "datanodes credentials"),
    ]
    for command in commands:
        if command == "get":
            (tmp_path / "part-0").unlink()
        for example in examples_of(command):
            if example.startswith("tail -f"):
                continue  # it does not end by itself
            said = run(*shlex.split(example), HADOOP_USER_NAME="")
            # Small clusters have fewer replicas than wanted, for which fsck's exit status is 3.
            assert said.exit_code == 0 or (command == "fsck" and said.exit_code == 3), (example, said.output)


@pytest.mark.cluster
def test_coordinator_may_be_named_before_the_command(
    run: Run, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = environment["PEACEFS_COORDINATOR"]
    # Restore these after the test, whatever the command sets.
    for variable in ("PEACEFS_URL", "PEACEFS_COORDINATOR"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    for arguments in (
        ["-c", address, "ls", "/"],
        ["ls", "-c", address, "/"],
        ["--coordinator", address, "ls", "/"],
    ):
        assert CliRunner().invoke(application, arguments).exit_code == 0, arguments
    refused = CliRunner().invoke(application, ["-c", address, "up"])
    assert refused.exit_code == 2 and "up is no client of a coordinator" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        (["stat", "-c", "%s", "/x"], "peacefs stat %b PATH", 2),
        (
            ["ls", "-c", "http://no-such-host.invalid:9870", "/"],
            "no address is known for the host no-such-host.invalid",
            1,
        ),
        (["ls", "-c", "http://a b", "/"], "names no host", 1),
    ],
)
def test_an_address_that_leads_nowhere_is_told_fittingly(arguments: list[str], words: str, status: int) -> None:
    said = CliRunner().invoke(application, arguments)
    assert said.exit_code == status
    assert words in " ".join(said.stderr.split())


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("stream ls file:///tmp", "numpy"),
        ("stream ls file:///tmp", "pyarrow"),
        ("dataflow demo", "cloudpickle"),
        ("dataflow demo", "pyarrow"),
        ("demo", "pyspark"),
    ],
)
def test_a_command_names_the_extra_that_it_lacks(command: str, module: str) -> None:
    without = f"import sys; sys.modules[{module!r}] = None; from peacefs.start import main; main()"
    ran = [sys.executable, "-c", without, *command.split()]
    done = subprocess.run(ran, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    (distribution,) = packages_distributions()[module]
    said = done.stderr.partition("peacefs[")[2].partition("]")[0].split(",")
    brought = [requirement for extra in said for requirement in _EXTRAS[extra]]
    assert any(requirement.startswith(distribution) for requirement in brought), done.stderr
