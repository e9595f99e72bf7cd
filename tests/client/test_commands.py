"""The command line on a real cluster: what users of `hdfs dfs` type, and what they see."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

import peacefs
from peacefs.client import filesystem
from peacefs.client.command_line.application import application
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.handshake import SPOKEN, Identity, SpokenVersions
from peacefs.protocol.messages import PROTOCOL_VERSION, PROTOCOL_VERSION_OLDEST

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command: its exit status and what it wrote."""

    returncode: int
    stdout: bytes
    stderr: bytes


Run = Callable[..., Outcome]


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process as alice, in a new working directory."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: bytes = b"", **changes: str) -> Outcome:
        result = CliRunner().invoke(
            application, arguments, input=stdin, env=environment | changes, prog_name="peacefs"
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout_bytes, result.stderr_bytes)

    return run


@pytest.fixture
def run_process(environment: dict[str, str], tmp_path: Path) -> Run:
    """Run a command in a process of its own, as users do."""

    def run(*arguments: str, stdin: bytes = b"", **changes: str) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-m", "peacefs", *arguments],
            input=stdin,
            capture_output=True,
            cwd=tmp_path,
            env=os.environ | environment | changes,
            timeout=180,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


def complaints(outcome: Outcome) -> list[str]:
    return outcome.stderr.decode().splitlines()


def test_ls_looks_like_hdfs_dfs_ls(run: Run, files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/part-0", b"x" * 1234)
    files.mkdirs(f"{home}/sub")
    outcome = run("ls", home)
    assert outcome.returncode == 0
    header, first, second = outcome.stdout.decode().splitlines()
    assert header == "Found 2 items"
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d"
    assert re.fullmatch(rf"-rw-r--r--   3 alice \S+ +1234 {when} {home}/part-0", first)
    assert re.fullmatch(rf"drwxr-xr-x   - alice \S+ +0 {when} {home}/sub", second)
    assert first.index("1234") + 4 == second.index(" 0 ") + 2, "sizes end in one column"


def test_ls_of_a_file_of_many_paths_and_of_a_tree(run: Run, files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/a/1", b"x" * 2048)
    files.write(f"{home}/b", b"")
    one = run("ls", "--human", f"{home}/a/1").stdout.decode()
    assert one.startswith("-rw-r--r--")
    assert " 2 K " in one
    tree = run("ls", "-R", home).stdout.decode().splitlines()
    assert [line.split()[-1] for line in tree] == [f"{home}/a", f"{home}/a/1", f"{home}/b"]
    both = run("ls", f"{home}/nothing", f"{home}/b")
    assert both.returncode == 1
    assert complaints(both) == [f"peacefs: ls: `{home}/nothing': No such file or directory"]
    assert both.stdout.decode().rstrip().endswith(f"{home}/b")


def test_ls_and_stat_speak_json_too(run: Run, files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/ä\n", b"12345")
    (listed,) = [json.loads(line) for line in run("ls", "--json", home).stdout.splitlines()]
    assert (listed["path"], listed["type"], listed["length"]) == (f"{home}/ä\n", "FILE", 5)
    assert json.loads(run("stat", "--json", f"{home}/ä\n").stdout) == listed


def test_stat_fills_its_format(run: Run, files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/file", b"12345")
    assert run("stat", "%b %n %r %F %u", f"{home}/file").stdout == b"5 file 3 regular file alice\n"
    assert re.fullmatch(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n", run("stat", f"{home}/file").stdout)
    assert run("stat", "%b").returncode == 2


def test_a_tree_goes_in_and_comes_out_the_same(run: Run, home: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    contents = {"a": b"", "b.bin": os.urandom(3_000_000), "deep/er/c d": b"c", "deep/ü": b"u"}
    for name, data in contents.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(data)
    (source / "empty").mkdir()
    assert run("put", "source", home).returncode == 0
    assert run("get", f"{home}/source", "copy").returncode == 0
    copied = {
        str(path.relative_to(tmp_path / "copy")): path.read_bytes()
        for path in (tmp_path / "copy").rglob("*")
        if path.is_file()
    }
    assert copied == contents
    assert (tmp_path / "copy" / "empty").is_dir()


@pytest.mark.fresh_processes
def test_put_and_cat_are_pipes(run_process: Run, home: str) -> None:
    data = os.urandom(2_500_000)
    assert run_process("put", "-", f"{home}/piped", stdin=data).returncode == 0
    assert run_process("cat", f"{home}/piped", f"{home}/piped").stdout == data + data


def test_command_newer_or_older_than_its_coordinator_says_what_to_do_in_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer, older = PROTOCOL_VERSION + 1, PROTOCOL_VERSION_OLDEST - 1
    for version, what in ((newer, "coordinator"), (older, "client")):
        with monkeypatch.context() as patch:
            spoken = SpokenVersions(version, version)
            patch.setattr(filesystem, "Identity", partial(Identity, versions=spoken))
            refused = run("ls", "/")
        assert refused.returncode == 1
        (line,) = complaints(refused)
        assert f"speaks protocol version {SPOKEN}, client " in line
        assert f"upgrade peacefs where {what}" in line


def test_put_says_that_a_block_size_is_cut_down(run: Run, home: str, tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(bytes(100_000))
    said = run("put", "--block-size", "128m", "local", f"{home}/large")
    assert (said.returncode, said.stdout) == (0, b"")
    (line,) = complaints(said)
    assert line.startswith("peacefs: put: the block size is 67108864 bytes in place of 134217728: ")
    assert run("stat", "%o", f"{home}/large").stdout == b"67108864\n"
    assert complaints(run("put", "--block-size", "64k", "local", f"{home}/small")) == []
    assert run("stat", "%o", f"{home}/small").stdout == b"65536\n"
    refused = run("put", "--block-size", "much", "local", f"{home}/other")
    assert refused.returncode != 0 and "no number of bytes" in complaints(refused)[0]


def test_put_replaces_only_by_force_and_needs_a_parent(run: Run, home: str, tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(b"first")
    assert run("put", "local", f"{home}/file").returncode == 0
    (tmp_path / "local").write_bytes(b"second")
    refused = run("put", "local", f"{home}/file")
    assert refused.returncode == 1
    assert complaints(refused) == [f"peacefs: put: `{home}/file': File exists"]
    assert run("put", "-f", "local", f"{home}/file").returncode == 0
    assert run("cat", f"{home}/file").stdout == b"second"
    assert complaints(run("put", "local", f"{home}/no/file")) == [
        f"peacefs: put: `{home}/no/file': No such file or directory"
    ]
    assert complaints(run("put", "nothing", home)) == ["peacefs: put: `nothing': No such file or directory"]


def test_several_sources_need_a_directory_and_the_good_ones_arrive(run: Run, home: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    outcome = run("put", "a", "nothing", "b", home)
    assert outcome.returncode == 1
    assert complaints(outcome) == ["peacefs: put: `nothing': No such file or directory"]
    assert run("cat", f"{home}/a", f"{home}/b").stdout == b"ab"
    refused = run("put", "a", "b", f"{home}/a")
    assert complaints(refused) == [f"peacefs: put: `{home}/a': Is not a directory"]


def test_a_name_that_cannot_be_is_complained_of_and_the_rest_arrives(run: Run, home: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("1-good", "2:colon", os.fsdecode(b"3-latin\xff"), "4-good"):
        (tree / name).write_bytes(b"x")
    outcome = run("put", "tree", home)
    assert outcome.returncode == 1
    colon, latin = complaints(outcome)
    assert colon.startswith(f"peacefs: put: `{home}/tree/2:colon': Invalid path name")
    assert latin == r"peacefs: put: `tree/3-latin\udcff': the name is not UTF-8; names in peacefs must be"
    listed = run("ls", f"{home}/tree").stdout.decode().splitlines()
    assert [line.rpartition("/")[2] for line in listed[1:]] == ["1-good", "4-good"]
    assert complaints(run("stat", f"{home}/2:colon", f"{home}/\udcff", home))[1:] == [
        rf"peacefs: stat: `{home}/\udcff': the name is not UTF-8; names in peacefs must be"
    ]


def test_an_empty_path_is_no_path_and_a_foreign_uri_is_none_here(
    run: Run, files: PeaceFileSystem, home: str, tmp_path: Path
) -> None:
    """An unset variable gives an empty path: `rm -r "$OUT"` must not delete the home directory."""
    files.write("/user/alice/kept", b"x", overwrite=True)
    (tmp_path / "local").write_bytes(b"x")
    refused = run("rm", "-r", "")
    assert (refused.returncode, complaints(refused)) == (
        1,
        ["peacefs: rm: `': a path cannot be empty; . is the home directory"],
    )
    assert files.read("/user/alice/kept") == b"x"
    assert complaints(run("put", "local", "")) == ["peacefs: put: a path cannot be empty; . is the home directory"]
    assert complaints(run("put", "", home)) == ["peacefs: put: `': No such file or directory"]
    assert complaints(run("get", "kept", "")) == ["peacefs: get: `': No such file or directory"]
    assert files.list(home) == []
    assert complaints(run("ls", "hdfs://host/x")) == [
        "peacefs: ls: `hdfs://host/x': not of this file system: a path, or webhdfs://host:port/path, is wanted"
    ]


def test_the_root_is_not_said_to_be_deleted(run: Run, files: PeaceFileSystem, home: str) -> None:
    outcome = run("rm", "-r", "/")
    assert (outcome.returncode, outcome.stdout) == (1, b"")
    assert complaints(outcome) == ["peacefs: rm: `/': The root cannot be deleted, only what is in it"]
    assert files.exists(home)


def test_a_time_beyond_the_calendar_is_shown_as_its_end(run: Run, shared_cluster: LocalCluster, home: str) -> None:
    assert run("mkdir", f"{home}/late").returncode == 0
    asked = f"{shared_cluster.http_address}/webhdfs/v1{home}/late?op=SETTIMES&user.name=alice"
    request = urllib.request.Request(f"{asked}&modificationtime={2**63 - 1}", method="PUT")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200
    assert b" 9999-12-3" in run("ls", home).stdout
    assert run("stat", "%y", f"{home}/late").stdout.startswith(b"9999-12-3")


def test_put_follows_links_but_not_in_circles(run: Run, home: str, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "circle").symlink_to(tmp_path / "tree")
    (tmp_path / "file").write_bytes(b"linked")
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "file")
    outcome = run("put", "tree", home)
    assert complaints(outcome) == ["peacefs: put: `tree/circle': Is a link to a directory that it lies in"]
    assert run("cat", f"{home}/tree/link").stdout == b"linked"


def test_get_leaves_an_existing_file_alone_and_no_rubbish(
    run: Run, files: PeaceFileSystem, home: str, tmp_path: Path
) -> None:
    files.write(f"{home}/file", b"remote")
    (tmp_path / "file").write_bytes(b"local")
    refused = run("get", f"{home}/file", ".")
    assert (refused.returncode, complaints(refused)) == (1, ["peacefs: get: `file': File exists"])
    assert (tmp_path / "file").read_bytes() == b"local"
    assert run("get", "-f", f"{home}/file", ".").returncode == 0
    assert (tmp_path / "file").read_bytes() == b"remote"
    assert complaints(run("get", f"{home}/file", "no/where")) == [
        "peacefs: get: `no/where': No such file or directory"
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_mv_renames_moves_into_directories_and_never_replaces(run: Run, files: PeaceFileSystem, home: str) -> None:
    for name in ("a", "b", "c"):
        files.write(f"{home}/{name}", name.encode())
    files.mkdirs(f"{home}/dir")
    assert run("mv", f"{home}/a", f"{home}/z").returncode == 0
    assert run("mv", f"{home}/z", f"{home}/b", f"{home}/dir").returncode == 0
    assert [entry.name for entry in files.list(f"{home}/dir")] == ["b", "z"]
    refused = run("mv", f"{home}/c", f"{home}/dir/b")
    assert (refused.returncode, complaints(refused)) == (1, [f"peacefs: mv: `{home}/dir/b': File exists"])
    missing = run("mv", f"{home}/nothing", f"{home}/dir")
    assert complaints(missing) == [f"peacefs: mv: `{home}/nothing': No such file or directory"]


def test_cp_copies_files_and_trees_without_data(run: Run, files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/d/sub/f", b"12345", replication=2)
    files.write(f"{home}/g", b"g")
    assert run("cp", f"{home}/d", f"{home}/e").stderr == (
        f"peacefs: cp: `{home}/d': Is a directory (copied only with -r)\n".encode()
    )
    assert run("cp", "-r", f"{home}/d", f"{home}/e").returncode == 0
    assert run("cp", f"{home}/g", f"{home}/e", f"{home}/d").returncode == 1, "e is a directory"
    assert run("cp", f"{home}/g", f"{home}/d/sub").returncode == 0
    files.delete(f"{home}/d", recursive=True)
    assert files.read(f"{home}/e/sub/f") == b"12345"
    for arguments in (("-r", f"{home}/e", f"{home}/g"), (f"{home}/e/sub/f", f"{home}/g")):
        refused = run("cp", *arguments)
        assert (refused.returncode, refused.stderr) == (1, f"peacefs: cp: `{home}/g': File exists\n".encode())
    assert run("cp", "-f", f"{home}/e/sub/f", f"{home}/g").returncode == 0
    assert files.read(f"{home}/g") == b"12345"
    assert sorted(entry.name for entry in files.list(home)) == ["e", "g"]
    assert run("cp", "-r", f"{home}/e", f"{home}/e/inside").returncode == 1


def test_cp_from_one_cluster_to_another_carries_the_data(
    run: Run, files: PeaceFileSystem, home: str, shared_cluster: LocalCluster
) -> None:
    """To a client, another address of the same coordinator is another cluster."""
    elsewhere = shared_cluster.http_address.replace("127.0.0.1", "localhost").replace("http:", "webhdfs:")
    files.write(f"{home}/d/sub/f", b"12345" * 100_000)
    done = run("cp", "-r", f"{elsewhere}{home}/d", f"{home}/e")
    assert (done.returncode, done.stderr) == (0, b"")
    assert files.read(f"{home}/e/sub/f") == b"12345" * 100_000


def test_rm_asks_for_r_with_directories_and_f_forgives(run: Run, files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/dir/file", b"")
    refused = run("rm", f"{home}/dir", f"{home}/nothing")
    assert refused.returncode == 1
    assert complaints(refused) == [
        f"peacefs: rm: `{home}/dir': Is a directory",
        f"peacefs: rm: `{home}/nothing': No such file or directory",
    ]
    outcome = run("rm", "-r", "-f", f"{home}/dir", f"{home}/nothing")
    assert (outcome.returncode, outcome.stdout.decode()) == (0, f"Deleted {home}/dir\n")
    assert not files.exists(f"{home}/dir")


def test_du_counts_replicas_of_what_is_in_a_directory_or_of_it_all(
    run: Run, files: PeaceFileSystem, home: str
) -> None:
    files.write(f"{home}/tree/deep/a", bytes(2000))
    files.write(f"{home}/tree/b", bytes(48), replication=2)
    lines = [line.split() for line in run("du", f"{home}/tree").stdout.decode().splitlines()]
    assert lines == [["48", "96", f"{home}/tree/b"], ["2000", "6000", f"{home}/tree/deep"]]
    assert run("du", "-s", "-h", f"{home}/tree").stdout.decode().split() == ["2", "K", "6.0", "K", f"{home}/tree"]
    assert json.loads(run("du", "--json", f"{home}/tree/b").stdout) == {
        "path": f"{home}/tree/b",
        "length": 48,
        "spaceConsumed": 96,
    }
    assert complaints(run("du", f"{home}/nothing")) == [
        f"peacefs: du: `{home}/nothing': No such file or directory"
    ]


def test_test_answers_by_its_exit_status(run: Run, files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/full", b"x")
    files.write(f"{home}/empty", b"")
    answers = {
        name: "".join(letter for letter in "edfsz" if run("test", f"-{letter}", f"{home}/{name}").returncode == 0)
        for name in ("", "full", "empty", "nothing")
    }
    assert answers == {"": "edz", "full": "efs", "empty": "efz", "nothing": ""}
    assert run("test", "-e", f"{home}/full").stderr == b""
    assert run("test", "-e", "-d", home).returncode == 2
    unknown = run("test", "-e", "-c", "http://127.0.0.1:1", "/")
    assert unknown.returncode == 3
    assert complaints(unknown)[0].startswith("peacefs: test: no coordinator at http://127.0.0.1:1")


def test_tail_shows_the_last_kibibyte(run: Run, files: PeaceFileSystem, home: str) -> None:
    data = os.urandom(3000)
    files.write(f"{home}/long", data)
    files.write(f"{home}/short", b"all of it")
    assert run("tail", f"{home}/long").stdout == data[-1024:]
    assert run("tail", f"{home}/short").stdout == b"all of it"
    assert complaints(run("tail", home)) == [f"peacefs: tail: `{home}': Is a directory"]


def test_setrep_changes_files_and_all_below_directories(run: Run, files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/tree/a", b"a")
    files.write(f"{home}/tree/deep/b", b"b")
    outcome = run("setrep", "2", f"{home}/tree")
    assert sorted(outcome.stdout.decode().splitlines()) == [
        f"Replication 2 set: {home}/tree/a",
        f"Replication 2 set: {home}/tree/deep/b",
    ]
    assert files.status(f"{home}/tree/deep/b").replication == 2
    assert run("setrep", "513", f"{home}/tree").returncode == 2
    assert complaints(run("setrep", "1", f"{home}/nothing")) == [
        f"peacefs: setrep: `{home}/nothing': No such file or directory"
    ]


def test_mkdir_is_strict_without_p(run: Run, files: PeaceFileSystem, home: str) -> None:
    refused = run("mkdir", f"{home}/a/b", home)
    assert complaints(refused) == [
        f"peacefs: mkdir: `{home}/a/b': No such file or directory",
        f"peacefs: mkdir: `{home}': File exists",
    ]
    assert run("mkdir", "-p", f"{home}/a/b", home).returncode == 0
    assert files.status(f"{home}/a/b").is_directory
    files.write(f"{home}/file", b"")
    assert run("mkdir", "-p", f"{home}/file").returncode == 1


def test_a_path_may_be_the_uri_that_spark_was_given(run: Run, shared_cluster: LocalCluster, home: str) -> None:
    uri = f"{shared_cluster.webhdfs_uri}{home}"
    elsewhere = "http://127.0.0.1:1"
    assert run("put", "-", f"{uri}/file", stdin=b"data", PEACEFS_COORDINATOR=elsewhere).returncode == 0
    listed = run("ls", f"{uri}/file", PEACEFS_COORDINATOR=elsewhere).stdout.decode()
    assert listed.rstrip().endswith(f" {uri}/file")
    assert (
        run("cat", "-c", shared_cluster.http_address, f"{home}/file", PEACEFS_COORDINATOR=elsewhere).stdout
        == b"data"
    )


def test_relative_paths_begin_at_the_users_home(run: Run, files: PeaceFileSystem) -> None:
    assert run("mkdir", "-p", "here/below").returncode == 0
    assert files.status("/user/alice/here/below").is_directory
    assert run("ls", "./here/").stdout.endswith(b" ./here/below\n")
    files.delete("/user/alice/here", recursive=True)


def test_patterns_stand_for_paths_and_those_that_match_nothing_are_complained_of(
    run: Run, files: PeaceFileSystem, shared_cluster: LocalCluster, home: str, tmp_path: Path
) -> None:
    for name in ("1/part-0", "1/part-1", "2/part-0", "2/_SUCCESS"):
        files.write(f"{home}/{name}", name.encode())
    assert run("cat", f"{home}/*/part-*").stdout == b"1/part-01/part-12/part-0"
    assert run("get", f"{home}/1/part-[01]", ".").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part-0", "part-1"]
    uri = f"{shared_cluster.webhdfs_uri}{home}"
    listed = run("ls", f"{uri}/?/_*").stdout.decode()
    assert listed.rstrip().endswith(f" {uri}/2/_SUCCESS")
    refused = run("rm", f"{home}/*/none*", f"{home}/{{1,2}}/part-0")
    assert complaints(refused) == [f"peacefs: rm: `{home}/*/none*': No such file or directory"]
    assert refused.stdout.decode() == f"Deleted {home}/1/part-0\nDeleted {home}/2/part-0\n"
    assert run("mv", f"{home}/2/*", f"{home}/1").returncode == 0
    assert [entry.name for entry in files.list(f"{home}/1")] == ["_SUCCESS", "part-1"]


@pytest.mark.fresh_processes
def test_an_absent_coordinator_is_one_line_that_says_what_to_do(run_process: Run) -> None:
    outcome = run_process("ls", "/", PEACEFS_COORDINATOR="http://127.0.0.1:1")
    assert outcome.returncode == 1
    (line,) = complaints(outcome)
    assert line.startswith("peacefs: ls: no coordinator at http://127.0.0.1:1: is `peacefs up` running?")


@pytest.mark.parametrize(
    "arguments",
    [("cat",), ("ls", "--no-such-option", "/"), ("no-such-command",), ("put", "x"), ("up", "--port", "-1")],
)
def test_wrong_usage_has_status_2_and_no_traceback(run: Run, arguments: tuple[str, ...]) -> None:
    outcome = run(*arguments)
    assert outcome.returncode == 2
    assert b"Traceback" not in outcome.stderr
    assert b"Usage: peacefs" in outcome.stderr


def test_a_bad_address_is_one_line(run: Run) -> None:
    outcome = run("ls", "-c", "ftp://name", "/")
    assert outcome.returncode == 1
    assert len(complaints(outcome)) == 1


@pytest.mark.fresh_processes
def test_the_version_is_shown(run_process: Run) -> None:
    assert run_process("--version").stdout.decode() == f"peacefs {peacefs.__version__}\n"
