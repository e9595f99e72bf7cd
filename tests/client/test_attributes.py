"""`peacefs chmod`, `chown` and `chgrp` on a real cluster, and how modes are read."""

from __future__ import annotations

import getpass
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from peacefs.client.command_line.application import application
from peacefs.client.command_line.modes import changed_mode
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import AccessDenied, BadRequest


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("750", 0o644, 0o750),
        ("1777", 0o644, 0o1777),
        ("0644", 0o1777, 0o644),
        ("u+x", 0o644, 0o744),
        ("go-rwx", 0o777, 0o700),
        ("a=r", 0o777, 0o444),
        ("+x", 0o644, 0o755),
        ("u=rwx,g=rx,o=", 0o002, 0o750),
        ("+t", 0o777, 0o1777),
        ("-t", 0o1777, 0o777),
        ("a+X", 0o644, 0o644),
        ("a+X", 0o744, 0o755),
    ],
)
def test_a_mode_is_octal_or_symbolic(text: str, before: int, after: int) -> None:
    assert changed_mode(text, before, is_directory=False) == after


def test_a_capital_x_is_for_directories() -> None:
    assert changed_mode("a+X", 0o644, is_directory=True) == 0o755


@pytest.mark.parametrize("text", ["", "88", "u+q", "u", "u+x,", "7777", "x+u"])
def test_mode_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        changed_mode(text, 0, is_directory=False)


@pytest.fixture
def run(shared_cluster: LocalCluster) -> Callable[..., tuple[int, str]]:
    """Run a command as a user. Return its exit status and stderr."""

    def run(user: str, *arguments: str) -> tuple[int, str]:
        environment = {"PEACEFS_COORDINATOR": shared_cluster.http_address, "HADOOP_USER_NAME": user}
        result = CliRunner().invoke(application, arguments, env=environment, prog_name="peacefs")
        return result.exit_code, result.stderr

    return run


@pytest.mark.cluster
class TestCommands:
    def test_chmod_takes_a_tree(
        self, run: Callable[..., tuple[int, str]], files: PeaceFileSystem, home: str
    ) -> None:
        files.write(f"{home}/d/f", b"x")
        assert run("alice", "chmod", "-R", "go-rx", f"{home}/d") == (0, "")
        assert files.status(f"{home}/d").permission == 0o700
        assert files.status(f"{home}/d/f").permission == 0o600
        assert run("alice", "chmod", "-w", f"{home}/d/f") == (0, "")
        assert files.status(f"{home}/d/f").permission == 0o400

    def test_a_stranger_is_refused_and_told_so(
        self,
        shared_cluster: LocalCluster,
        run: Callable[..., tuple[int, str]],
        files: PeaceFileSystem,
        home: str,
    ) -> None:
        files.write(f"{home}/f", b"mine")
        files.set_permission(home, 0o700)
        with PeaceFileSystem(shared_cluster.http_address, user="eve") as eves:
            for attempt in (
                lambda: eves.read(f"{home}/f"),
                lambda: eves.write(f"{home}/g", b""),
                lambda: eves.delete(home, recursive=True),
                lambda: eves.open_for_appending(f"{home}/f").close(),
                lambda: eves.truncate(f"{home}/f", 0),
                lambda: eves.concat(f"{home}/f", ["/g"]),
            ):
                with pytest.raises(AccessDenied, match="Permission denied: user=eve"):
                    attempt()
        status, said = run("eve", "chmod", "777", home)
        assert status == 1 and f"`{home}': Permission denied. user=eve is not the owner" in said
        assert files.read(f"{home}/f") == b"mine"

    def test_only_the_superuser_gives_files_away(
        self, run: Callable[..., tuple[int, str]], files: PeaceFileSystem, home: str
    ) -> None:
        status, said = run("alice", "chown", "bob", home)
        assert status == 1 and "cannot change owner" in said
        assert run("alice", "chgrp", "alice", home) == (0, "")
        assert files.status(home).group == "alice"
        assert run(getpass.getuser(), "chown", "-R", "bob:builders", home) == (0, "")
        assert (files.status(home).owner, files.status(home).group) == ("bob", "builders")
        assert run("alice", "chown", ":", home)[0] == 2

    def test_a_wrong_mode_changes_nothing(
        self, run: Callable[..., tuple[int, str]], files: PeaceFileSystem, home: str
    ) -> None:
        status, said = run("alice", "chmod", "rwx", home)
        assert status == 1 and "is no mode" in said
        assert files.status(home).permission == 0o755
