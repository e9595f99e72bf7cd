"""The trash: where `rm` moves deleted files, under which names, and how users empty it."""

from __future__ import annotations

import contextlib
import re

import pytest
from support.open_root import open_homes
from typer.testing import CliRunner

from peacefs.client.command_line.application import application
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.trash import ClientTrash
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.protocol.errors import AccessDenied, FileNotFound, RenameRefused
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.values.trash import checkpoint_name

from .conftest import NameSide

CURRENT = "/user/ann/.Trash/Current"


@pytest.fixture
def side(tmp_path, signer):
    """Yield a name side with a trash, for authenticated users."""
    made = NameSide(tmp_path, signer, Callers("hdfs"), trash_minutes=60)
    with contextlib.closing(made), made.served:
        made.register("dn-1", 9866, 9864)
        made.commit_now(open_homes)
        yield made


@pytest.fixture
def ann(side):
    with PeaceFileSystem(f"http://127.0.0.1:{side.port}", user="ann") as files:
        files.mkdirs("/data/d/sub")
        yield files


@pytest.fixture
def run(side):
    """Run a command as ann; return its exit status, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        environment = {"PEACEFS_COORDINATOR": f"http://127.0.0.1:{side.port}", "HADOOP_USER_NAME": "ann"}
        result = CliRunner().invoke(application, arguments, env=environment, prog_name="peacefs")
        return result.exit_code, result.stdout, result.stderr

    return run


def names(files, path):
    return [entry.name for entry in files.list(path)]


def test_rm_moves_to_the_trash_and_from_there_deletes(run, ann):
    assert run("rm", "/data/d")[0] == 1, "a directory"
    moved = run("rm", "-r", "/data/d")
    assert moved == (0, f"Moved /data/d to trash at {CURRENT}/data/d\n", "")
    assert names(ann, f"{CURRENT}/data/d") == ["sub"]
    assert ann.status("/user/ann/.Trash").permission == 0o700
    assert run("rm", "-r", CURRENT + "/data/d") == (0, f"Deleted {CURRENT}/data/d\n", "")
    assert names(ann, f"{CURRENT}/data") == []
    ann.mkdirs("/data/e")
    assert run("rm", "-r", "--skip-trash", "/data/e") == (0, "Deleted /data/e\n", "")
    assert names(ann, f"{CURRENT}/data") == []
    assert run("rm", "/none")[0] == 1
    assert run("rm", "-r", "/user") == (
        1,
        "",
        'peacefs: rm: `/user\': Cannot move "/user" to the trash, as it contains the trash '
        "(--skip-trash deletes without the trash)\n",
    )


def test_delete_over_webhdfs_deletes_at_once(side, ann):
    assert side.ask("DELETE", "/data/d", "DELETE", recursive="true", user_name="ann").json == {"boolean": True}
    assert not ann.exists(CURRENT)


def test_trashed_file_of_the_same_path_gets_the_time_behind_its_name(ann):
    clock = iter([1000.0, 1000.001, 1000.002])
    trash = ClientTrash(ann, clock=lambda: next(clock))
    places = []
    for _ in range(3):
        ann.mkdirs("/data/x")
        places.append(trash.move("/data/x"))
    assert places == [f"{CURRENT}/data/{name}" for name in ("x", "x1000001", "x1000002")]


def test_a_file_in_the_way_of_a_directory_is_gone_around(side, ann):
    """The file /data/x was deleted. Then something is deleted below a new directory /data/x."""
    root = NameSideFiles(side)
    root.make_file("/data/x")
    trash = ClientTrash(ann, clock=lambda: 1000.0)
    assert trash.move("/data/x") == f"{CURRENT}/data/x"
    ann.mkdirs("/data/x/below")
    assert trash.move("/data/x/below") == f"{CURRENT}/data/x1000000/below"


def test_a_checkpoint_that_is_made_meanwhile_costs_one_more_attempt(ann):
    class Interrupted:
        """Renames Current away after the directories in it were created."""

        def __init__(self) -> None:
            self.interruptions = 1

        def __getattr__(self, name: str) -> object:
            return getattr(ann, name)

        def mkdirs(self, path: str, permission: int = 0o755) -> None:
            ann.mkdirs(path, permission)
            if path.startswith(CURRENT) and self.interruptions:
                self.interruptions -= 1
                ann.rename(CURRENT, "/user/ann/.Trash/200101000000")

    assert ClientTrash(Interrupted()).move("/data/d") == f"{CURRENT}/data/d"
    assert names(ann, "/user/ann/.Trash") == ["200101000000", "Current"]


def test_trash_is_refused(ann, side):
    with pytest.raises(FileNotFound):
        ann.move_to_trash("/none")
    ann.mkdirs("/user/ann")
    with pytest.raises(RenameRefused, match="contains the trash"):
        ann.move_to_trash("/user/ann")
    ann.move_to_trash("/data/d")
    for inside in ("/user/ann/.Trash", CURRENT, f"{CURRENT}/data/d"):
        assert ann.move_to_trash(inside) is None
    with PeaceFileSystem(f"http://127.0.0.1:{side.port}", user="bob") as bob:
        with pytest.raises(AccessDenied):
            bob.move_to_trash("/data")
        bob.mkdirs("/bobs")
        assert bob.move_to_trash("/bobs") == "/user/bob/.Trash/Current/bobs", "the first home was made for all"
        with pytest.raises(AccessDenied):
            bob.list("/user/ann/.Trash")


def test_expunge_deletes_what_is_old_and_keeps_the_rest_as_a_checkpoint(run, ann):
    assert run("expunge") == (0, "", "")
    old, young = "200101000000", checkpoint_name(int(1e15))
    for name in (old, young, "notes"):
        ann.mkdirs(f"/user/ann/.Trash/{name}/x")
    run("rm", "-r", "/data/d")
    assert run("expunge") == (0, f"Deleted /user/ann/.Trash/{old}\n", "")
    first, second, *others = names(ann, "/user/ann/.Trash")
    assert re.fullmatch(r"\d{12}", first) and {first, second} >= {young} and others == ["notes"]
    assert not ann.exists(CURRENT)
    assert run("expunge", "--immediate")[1].count("Deleted") == 2
    assert names(ann, "/user/ann/.Trash") == ["notes"], "what is no checkpoint is left alone"


class NameSideFiles:
    """Makes files without a datanode."""

    def __init__(self, side):
        self._side = side

    def make_file(self, path):
        from peacefs.coordinator.namespace import operations as namespace

        file = NewFile(path=path, user="ann", replication=1, block_bytes=1 << 26, request_id=path)
        self._side.commit_now(lambda tx: namespace.complete_file(tx, file, [], 1))


def test_rename_of_a_stock_clients_trash_is_strict(side, ann):
    ann.mkdirs(f"{CURRENT}/data")
    asked = {"destination": f"{CURRENT}/data/d", "renameoptions": "TO_TRASH", "user_name": "ann"}
    done = side.ask("PUT", "/data/d", "RENAME", **asked)
    assert (done.status, done.body) == (200, b"")
    ann.mkdirs("/data/d")
    assert side.ask("PUT", "/data/d", "RENAME", **asked).error[:2] == (
        403,
        "org.apache.hadoop.fs.FileAlreadyExistsException",
    )
    assert names(ann, f"{CURRENT}/data") == ["d"]


def test_roots_are_ones_own_or_those_that_one_may_see(side, ann):
    def roots(user, all_users):
        asked = side.ask("GET", "/", "GETTRASHROOTS", user_name=user, allusers=str(all_users).lower())
        return [(one["path"], one["isdir"], one["owner"], one["permission"]) for one in asked.json["Paths"]]

    assert roots("ann", False) == roots("hdfs", True) == []
    ann.move_to_trash("/data/d")
    anns = ("/user/ann/.Trash", True, "ann", "700")
    assert roots("ann", False) == [anns]
    assert roots("bob", False) == []
    with PeaceFileSystem(f"http://127.0.0.1:{side.port}", user="bob") as bob:
        bob.mkdirs("/bobs")
        bob.move_to_trash("/bobs")
        bob.set_permission("/user/bob", 0o700)
    assert [path for path, *_ in roots("hdfs", True)] == ["/user/ann/.Trash", "/user/bob/.Trash"]
    assert roots("ann", True) == [anns], "into bob's home she may not look"
