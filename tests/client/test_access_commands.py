"""ACLs and extended attributes from the command line and the Python client, as users of `hdfs dfs` expect them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from peacefs.client.command_line.application import application
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import FileNotFound, InvalidAcl
from peacefs.protocol.values.acl_entries import acl_text, parse_acl

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command: its exit status and what it wrote."""

    status: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Outcome:
        result = CliRunner().invoke(application, arguments, env=environment, prog_name="peacefs")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout_bytes.decode(), result.stderr_bytes.decode())

    return run


def lines(run: Run, *arguments: str) -> list[str]:
    done = run(*arguments)
    assert (done.status, done.err) == (0, "")
    return done.out.splitlines()


def test_getfacl_shows_what_hdfs_dfs_does(run: Run, files: PeaceFileSystem, home: str) -> None:
    files.mkdirs(f"{home}/d")
    files.set_permission(f"{home}/d", 0o1770)
    assert lines(run, "setfacl", "-m", "user:bob:rwx,default:group:staff:r-x", f"{home}/d") == []
    files.set_permission(f"{home}/d", 0o1750)
    status = files.status(f"{home}/d")
    assert lines(run, "getfacl", f"{home}/d") == [
        f"# file: {home}/d",
        f"# owner: {status.owner}",
        f"# group: {status.group}",
        "# flags: --T",
        "user::rwx",
        "user:bob:rwx\t#effective:r-x",
        "group::rwx\t#effective:r-x",
        "mask::r-x",
        "other::---",
        "default:user::rwx",
        "default:group::rwx",
        "default:group:staff:r-x",
        "default:mask::rwx",
        "default:other::---",
        "",
    ]


def test_setfacl_adds_removes_replaces_and_clears(run: Run, files: PeaceFileSystem, home: str) -> None:
    path = f"{home}/file"
    files.write(path, b"x")
    files.set_permission(path, 0o640)
    run("setfacl", "-m", "user:bob:r--,group:staff:rw-", path)
    assert (
        acl_text(files.acls.get(path)) == "user::rw-,user:bob:r--,group::r--,group:staff:rw-,mask::rw-,other::---"
    )
    run("setfacl", "-x", "user:bob", path)
    assert acl_text(files.acls.get(path)) == "user::rw-,group::r--,group:staff:rw-,mask::rw-,other::---"
    run("setfacl", "--set", "user::rw-,user:ann:r--,group::---,other::r--", path)
    assert acl_text(files.acls.get(path)) == "user::rw-,user:ann:r--,group::---,mask::r--,other::r--"
    run("setfacl", "-b", path)
    assert acl_text(files.acls.get(path)) == "user::rw-,group::---,other::r--"


def test_setfacl_of_a_tree_gives_files_no_default_entries(run: Run, files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/tree/file", b"x")
    spec = "user:bob:rwx,default:user:bob:rwx"
    assert lines(run, "setfacl", "-R", "-m", spec, f"{home}/tree") == []
    assert "user:bob:rwx" in map(str, files.acls.get(f"{home}/tree/file"))
    assert "default:user:bob:rwx" in map(str, files.acls.get(f"{home}/tree"))
    assert [line for line in lines(run, "getfacl", "-R", f"{home}/tree") if line.startswith("# file")] == [
        f"# file: {home}/tree",
        f"# file: {home}/tree/file",
    ]
    assert lines(run, "setfacl", "-R", "-k", f"{home}/tree") == []
    assert not any("default" in str(entry) for entry in files.acls.get(f"{home}/tree"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["setfacl", "-m", "user:bob", "PATH"], "Invalid <aclSpec> : user:bob"),
        (["setfacl", "-m", "user:bob:rwxx", "PATH"], "Invalid permission in <aclSpec> : user:bob:rwxx"),
        (["setfacl", "-m", "", "PATH"], "Missing <acl_spec> entry"),
        (["setfacl", "-m", "default:user:bob:r--", "PATH"], "only directories may have a default ACL"),
        (["setfacl", "--set", "user:bob:r--", "PATH"], "the user, group and other entries are required"),
        (["setfacl", "-m", ",".join(f"user:u{n}:r--" for n in range(40)), "PATH"], "exceeds maximum of 32"),
        (["getfacl", "/nothing-here"], "No such file or directory"),
        (["setfattr", "-n", "user.x", "-v", "0xzz", "PATH"], "the value of user.x cannot be read"),
        (["setfattr", "-n", "nonsense", "-v", "x", "PATH"], "name must be prefixed with user/trusted"),
        (["setfattr", "-n", f"user.{'n' * 20000}", "PATH"], "The XAttr is too big"),
        (["setfattr", "-x", "user.none", "PATH"], "No matching attributes found"),
        (["getfattr", "-n", "user.none", "PATH"], "At least one of the attributes provided was not found"),
        (["getfattr", "-d", "-e", "rot13", "PATH"], "Invalid/unsupported encoding option specified: rot13"),
    ],
)
def test_bad_lists_and_attributes_are_one_line(
    run: Run, files: PeaceFileSystem, home: str, arguments: list[str], words: str
) -> None:
    files.write(f"{home}/file", b"x")
    done = run(*(f"{home}/file" if word == "PATH" else word for word in arguments))
    assert (done.status, done.out) == (1, "")
    assert words in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["setfacl", "/x"],
        ["setfacl", "-b", "-k", "/x"],
        ["setfacl", "-b", "-m", "user:bob:r--", "/x"],
        ["setfacl", "-m", "user:bob:r--"],
        ["setfattr", "/x"],
        ["setfattr", "-n", "user.a", "-x", "user.a", "/x"],
        ["setfattr", "-x", "user.a", "-v", "1", "/x"],
        ["getfattr", "/x"],
        ["getfattr", "-d", "-n", "user.a", "/x"],
    ],
)
def test_options_that_conflict_are_wrong_usage(run: Run, arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.status, done.out) == (2, "")


def test_attributes_are_set_shown_and_removed(run: Run, files: PeaceFileSystem, home: str) -> None:
    path = f"{home}/file"
    files.write(path, b"x")
    assert lines(run, "setfattr", "-n", "user.a", "-v", "text", path) == []
    assert lines(run, "setfattr", "-n", "user.b", "-v", "0x3132", path) == []
    assert lines(run, "setfattr", "-n", "user.c", path) == []
    assert lines(run, "getfattr", "-d", path) == [f"# file: {path}", 'user.a="text"', 'user.b="12"', "user.c"]
    assert lines(run, "getfattr", "-n", "user.b", "-e", "hex", path) == [f"# file: {path}", "user.b=0x3132"]
    assert lines(run, "setfattr", "-x", "user.a", path) == []
    assert files.xattrs.get(path) == {"user.b": b"12", "user.c": b""}


def test_acls_of_the_python_client_raise_what_hdfs_does(files: PeaceFileSystem, home: str) -> None:
    files.write(f"{home}/file", b"x")
    with pytest.raises(InvalidAcl, match=f"only directories may have a default ACL. Path: {home}/file"):
        files.acls.modify(f"{home}/file", parse_acl("default:user:bob:r--"))
    with pytest.raises(FileNotFound):
        files.acls.get(f"{home}/nothing")
    files.acls.set(f"{home}/file", parse_acl("user::rw-,group::r--,group:staff:rwx,other::---"))
    files.acls.remove_entries(f"{home}/file", parse_acl("group:staff", with_permissions=False))
    assert not any(entry.name for entry in files.acls.get(f"{home}/file"))
    files.acls.remove(f"{home}/file")
    assert acl_text(files.acls.get(f"{home}/file")) == "user::rw-,group::r--,other::---"
