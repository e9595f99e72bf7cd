"""Forks, rollbacks and imports record their source, for the command, for REST, and in copies."""

from __future__ import annotations

import errno
import getpass
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result
from support import checkpoints as made

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.checkpoints.ancestry import ANCESTRY_ATTRIBUTE
from peacefs.spark_connector.checkpoints.catalogue import find_families
from peacefs.spark_connector.checkpoints.relocation import fork
from peacefs.spark_connector.checkpoints.tree import LocalTree, PeaceTree

Peacefs = Callable[..., Result]


def write(files: PeaceFileSystem, root: str, *, batches: int = 8) -> None:
    for path, data in made.checkpoint(root=root, batches=batches).files.items():
        files.write(path, data)


def told(peacefs: Peacefs, *arguments: str) -> list[Any]:
    done = peacefs(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def tree(family: dict[str, Any]) -> list[tuple[int, str, str, str]]:
    return [
        (each["depth"], each["path"], each["presence"], (each["made"] or {}).get("kind", ""))
        for each in family["members"]
    ]


@pytest.mark.cluster
def test_ancestry_follows_forks_of_forks_a_rollback_and_what_became_of_them(
    cluster: LocalCluster, peacefs: Peacefs
) -> None:
    address = f"--coordinator={cluster.http_address}"

    def run(*arguments: str) -> str:
        done = peacefs(*arguments, address)
        assert done.exit_code == 0, done.output
        return done.stdout

    with PeaceFileSystem(cluster.http_address) as files:
        write(files, "/line/orders")
        run("fork", "/line/orders", "/line/trial")
        run("fork", "/line/trial", "/line/trial-2")
        rolled = ("rollback", "/line/orders", "--to-batch=5", "--no-file-sink", "--idle=0", "--batches-may-differ")
        run(*rolled)
        (kept,) = (each.path for each in files.list("/line") if ".before-rollback-to-5." in each.path)
        run("fork", "/line/orders", "/line/after")
        (family,) = told(peacefs, "ancestry", "/line", address)
        # The first fork was made from the checkpoint that is now kept; the second one from its replacement.
        assert tree(family) == [
            (0, kept, "here", ""),
            (1, "/line/trial", "here", "fork"),
            (2, "/line/trial-2", "here", "fork"),
            (1, "/line/orders", "here", "rollback"),
            (2, "/line/after", "here", "fork"),
        ]
        by_path = {each["path"]: each for each in family["members"]}
        made_by = by_path["/line/orders"]["made"]
        assert (made_by["before"], made_by["batch"], made_by["user"]) == (7, 5, files.user)
        assert by_path["/line/after"]["made"]["batch"] == by_path["/line/after"]["committed"] == 5
        assert by_path["/line/trial"]["made"]["batch"] == 7

        # The middle fork is moved, the first checkpoint is deleted, and another query takes its path.
        files.rename("/line/trial", "/line/moved")
        files.delete("/line/orders", recursive=True)
        write(files, "/line/orders", batches=2)
        files.copy("/line/trial-2", "/line/copied")
        (family,) = told(peacefs, "ancestry", "/line", address)
        assert tree(family) == [
            (0, kept, "here", ""),
            (1, "/line/moved", "here", "fork"),
            (2, "/line/trial-2", "here", "fork"),
            (3, "/line/copied", "here", "copy"),
            (1, "/line/orders", "replaced", "rollback"),
            (2, "/line/after", "here", "fork"),
        ]
        text = run("ancestry", "/line").splitlines()
        assert text[0].startswith(f"{kept}: batch 7 is the latest")
        assert text[2].startswith("   └─ /line/trial-2: fork at batch 7, ") and text[2].endswith("is the latest")
        assert "gone, and another checkpoint is there now" in text[4]

        answer = httpx.get(
            f"{cluster.http_address}/v1/checkpoints/ancestry",
            params={"path": "/line", "user": files.user},
            timeout=180,
            trust_env=False,
        )
        assert answer.json() == {"families": [family]}
        (shown,) = told(peacefs, "show", "/line/after", address)
        assert [each["kind"] for each in shown["ancestry"]["steps"]] == ["rollback", "fork"]
        assert "Made by:" in run("show", "/line/after")
        assert "rollback of /line/orders from batch 7 to 5, " in run("show", "/line/after")


@pytest.mark.cluster
def test_ancestry_that_is_damaged_is_said_and_hinders_nothing(cluster: LocalCluster, peacefs: Peacefs) -> None:
    address = f"--coordinator={cluster.http_address}"
    with PeaceFileSystem(cluster.http_address) as files:
        write(files, "/hurt/orders", batches=3)
        files.xattrs.set("/hurt/orders", ANCESTRY_ATTRIBUTE, b"<b>not JSON</b>\x00")
        (family,) = told(peacefs, "ancestry", "/hurt", address)
        assert [(each["path"], each["damaged"]) for each in family["members"]] == [("/hurt/orders", True)]
        assert "is damaged" in peacefs("show", "/hurt/orders", address).stdout
        assert peacefs("fork", "/hurt/orders", "/hurt/fork", address).exit_code == 0
        (family,) = told(peacefs, "ancestry", "/hurt", address)
        assert [(each["path"], each["damaged"]) for each in family["members"]] == [
            ("/hurt/orders", True),
            ("/hurt/fork", False),
        ]
        assert told(peacefs, "verify", "/hurt/fork", address)[0]["restarts"]


@pytest.mark.cluster
def test_ancestry_of_what_one_may_not_see_is_gone(cluster: LocalCluster) -> None:
    with PeaceFileSystem(cluster.http_address) as files:
        write(files, "/hidden/private/orders", batches=2)
        fork(PeaceTree(files), "/hidden/private/orders", "/hidden/public")
        files.set_permission("/hidden/private", 0o700)
        with PeaceFileSystem(cluster.http_address, user="stranger") as stranger:
            (family,) = find_families(PeaceTree(stranger), ["/hidden"])
        assert [(each.path, each.presence.value) for each in family.members] == [
            ("/hidden/private/orders", "gone"),
            ("/hidden/public", "here"),
        ]

        def listed(**more: str) -> httpx.Response:
            return httpx.get(
                f"{cluster.http_address}/v1/checkpoints",
                params={"path": "/hidden", "user": "stranger", **more},
                timeout=180,
                trust_env=False,
            )

        assert listed().status_code == 403
        # A page shows readable checkpoints, and leaves out the others.
        assert [each["root"] for each in listed(partial="true").json()["checkpoints"]] == ["/hidden/public"]


def test_ancestry_of_an_import_names_its_archive(local: Path, peacefs: Peacefs, tmp_path: Path) -> None:
    archive = tmp_path / "orders.zip"
    assert peacefs("export", f"file://{local}", str(archive)).exit_code == 0
    assert peacefs("import", str(archive), f"file://{tmp_path}/back").exit_code == 0
    (shown,) = told(peacefs, "show", f"file://{tmp_path}/back")
    (step,) = shown["ancestry"]["steps"]
    assert (step["kind"], step["source"], step["batch"]) == ("import", "orders.zip", 7)
    assert step["user"] == getpass.getuser()


def test_ancestry_is_kept_on_this_machine_too(local: Path, peacefs: Peacefs) -> None:
    root = f"file://{local}"
    assert peacefs("fork", root, f"{root}-fork").exit_code == 0
    rolled = ("rollback", root, "--to-batch=6", "--no-file-sink", "--idle=0")
    assert peacefs(*rolled).exit_code == 0
    (family,) = told(peacefs, "ancestry", f"file://{local.parent}")
    assert [(depth, kind) for depth, _path, _presence, kind in tree(family)] == [
        (0, ""),
        (1, "fork"),
        (1, "rollback"),
    ]
    assert [path for _depth, path, _presence, _kind in tree(family)][1:] == [f"{local}-fork", str(local)]


def test_a_fork_is_made_where_no_ancestry_can_be_kept_and_says_so(
    local: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Forgetful(LocalTree):
        def set_attribute(self, path: str, name: str, value: bytes) -> None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    fork(Forgetful(), str(local), f"{local}-fork")
    (record,) = caplog.records
    assert record.getMessage() == (
        f"the origin of the fork, {local}, cannot be recorded: [Errno 95] Operation not supported"
    )
    assert Path(f"{local}-fork", "metadata").exists()
