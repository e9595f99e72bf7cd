"""Requests of several users for which there may be several reasons to refuse them, and HDFS's answers.

`make contract` plays the requests against a NameNode and against peacefs. The answers of a NameNode of Hadoop 3.5
are kept in `hdfs_refusals.json`: `python -m oracles.hdfs_refusals webhdfs://HOST:PORT` writes that file. Knows
nothing of peacefs.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from .hdfs_rights import WebHdfs

RECORDED = Path(__file__).with_suffix(".json")
_SUPERUSER = "superuser"
USERS = ("ann", "bob", _SUPERUSER)


class _Made(NamedTuple):
    """A file or directory of the tree in which requests are made."""

    path: str
    owner: str
    mode: str
    is_file: bool = False


_TREE = (
    _Made("file", "ann", "600", is_file=True),
    _Made("empty", "ann", "755"),
    _Made("full", "ann", "755"),
    _Made("full/of-bob", "bob", "755"),
    _Made("full/of-bob/inner", "bob", "755"),
    _Made("full/open", "bob", "666", is_file=True),
    _Made("shut", "ann", "700"),
    _Made("shut/file", "ann", "644", is_file=True),
    _Made("sticky", _SUPERUSER, "1777"),
    _Made("sticky/file", "ann", "644", is_file=True),
    _Made("sticky/theirs", "bob", "666", is_file=True),
    _Made("write-only", "bob", "733"),
    _Made("write-only/file", "bob", "600", is_file=True),
)
_PATHS = (
    *("file", "file/x", "file/x/y", "empty", "empty/x", "empty/x/y", "full", "full/of-bob", "full/of-bob/inner"),
    *("full/open", "full/open/x", "shut", "shut/file", "shut/file/x", "shut/none", "sticky/file", "sticky/theirs"),
    *("sticky/theirs/x", "write-only", "write-only/file", "write-only/file/x", "none", "none/x"),
)
_OPERATIONS = (
    ("PUT", "CREATE", {"overwrite": "false", "replication": "1"}),
    ("PUT", "CREATE", {"overwrite": "true", "replication": "1"}),
    ("PUT", "MKDIRS", {}),
    ("DELETE", "DELETE", {"recursive": "false"}),
    ("DELETE", "DELETE", {"recursive": "true"}),
    ("GET", "GETFILESTATUS", {}),
    ("GET", "LISTSTATUS", {}),
    ("GET", "OPEN", {}),
    ("POST", "APPEND", {}),
    ("POST", "TRUNCATE", {"newlength": "0"}),
    ("PUT", "SETPERMISSION", {"permission": "644"}),
    ("PUT", "SETOWNER", {"owner": "ann"}),
    ("PUT", "SETQUOTA", {"namespacequota": "100"}),
    ("GET", "GETCONTENTSUMMARY", {}),
)
_MOVED = (
    "file",
    "file/x",
    "full",
    "full/open",
    "shut/file",
    "sticky/file",
    "sticky/theirs",
    "write-only/file",
    "none",
)
_ONTO = (
    "file/x",
    "full/open",
    "full/of-bob",
    "shut/new",
    "sticky/file",
    "empty",
    "empty/new",
    "write-only/new",
    "none/x",
)


def play(files: WebHdfs, top: str, *, part: int = 1) -> dict[str, str]:
    """Return the status of each request, or of every `part`-th, with the name of the exception, by the request."""
    trees = itertools.count()
    outcomes = {}
    place = ""
    for name, user, method, path, op, parameters in itertools.islice(_requests(), 0, None, part):
        if not place:
            place = f"{top}/{next(trees)}"
            _make_tree(files, place)
        given = {key: f"{place}/{value}" if key == "destination" else value for key, value in parameters.items()}
        answer = files.ask(user, method, f"{place}/{path}", op, **given)
        if answer.is_success:
            said = str(answer.status_code)
            if method != "GET":
                place = ""
        else:
            said = f"{answer.status_code} {answer.json()['RemoteException']['exception']}"
        outcomes[name] = said
    return outcomes


def _requests() -> Iterator[tuple[str, str, str, str, str, dict[str, str]]]:
    for path, (method, op, parameters), user in itertools.product(_PATHS, _OPERATIONS, USERS):
        shown = "".join(f" {key}={value}" for key, value in parameters.items() if key != "replication")
        yield f"{user}: {op} {path}{shown}", user, method, path, op, parameters
    for source, target, option, user in itertools.product(_MOVED, _ONTO, ("NONE", "OVERWRITE"), USERS):
        if source != target:
            given = {"destination": target, "renameoptions": option}
            yield f"{user}: RENAME {source} to {target} {option}", user, "PUT", source, "RENAME", given


def _make_tree(files: WebHdfs, place: str) -> None:
    files.ask(_SUPERUSER, "PUT", place, "MKDIRS", permission="777").raise_for_status()
    for made in _TREE:
        path = f"{place}/{made.path}"
        if made.is_file:
            answer = files.ask(_SUPERUSER, "PUT", path, "CREATE", replication="1")
        else:
            answer = files.ask(_SUPERUSER, "PUT", path, "MKDIRS")
        answer.raise_for_status()
        files.ask(_SUPERUSER, "PUT", path, "SETPERMISSION", permission=made.mode).raise_for_status()
        if made.owner != _SUPERUSER:
            files.ask(_SUPERUSER, "PUT", path, "SETOWNER", owner=made.owner).raise_for_status()


def recorded() -> dict[str, str]:
    """Return what HDFS answered."""
    found: dict[str, str] = json.loads(RECORDED.read_text())
    return found


if __name__ == "__main__":
    with closing(WebHdfs(sys.argv[1])) as asked:
        told = play(asked, "/refusals")
    RECORDED.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
