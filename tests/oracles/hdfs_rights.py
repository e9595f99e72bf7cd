"""The rights that HDFS gives to directories made on the way: requests of several users, and HDFS's answers.

`make contract` plays the requests against a NameNode and against peacefs. The answers of a NameNode of Hadoop 3.5
are kept in `hdfs_rights.json`, so that other tests need none: `python -m oracles.hdfs_rights webhdfs://HOST:PORT`
writes that file. Knows nothing of peacefs.
"""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx

RECORDED = Path(__file__).with_suffix(".json")
#: Permissions of the directory of ann and the group staff in which each user tries each operation.
MODES = ("1777", "777", "775", "755", "750", "700", "555")
USERS = ("ann", "bob")
_SUPERUSER = "superuser"


class Attempt(NamedTuple):
    """An operation below the directory, on a path whose first two names do not exist."""

    name: str
    op: str
    path: str
    parameters: dict[str, str]


ATTEMPTS = (
    Attempt("create", "CREATE", "a/b/f", {}),
    Attempt("create, umask 077", "CREATE", "a/b/f", {"permission": "600"}),
    Attempt("create, umask 002", "CREATE", "a/b/f", {"permission": "664"}),
    Attempt("create, umask 000", "CREATE", "a/b/f", {"permission": "666"}),
    Attempt("create, umask 027 said", "CREATE", "a/b/f", {"permission": "640", "unmaskedpermission": "666"}),
    Attempt("mkdirs", "MKDIRS", "a/b/f", {}),
    Attempt("mkdirs, umask 077", "MKDIRS", "a/b/f", {"permission": "700"}),
    Attempt("mkdirs, sticky", "MKDIRS", "a/b/f", {"permission": "1777"}),
    Attempt("mkdirs, read only", "MKDIRS", "a/b/f", {"permission": "555"}),
    Attempt("mkdirs, umask 027 said", "MKDIRS", "a/b/f", {"permission": "750", "unmaskedpermission": "777"}),
    Attempt("rename", "RENAME", "old", {"destination": "a/b/f"}),
)


class WebHdfs:
    """A file system over WebHDFS. Requests name their user."""

    def __init__(self, uri: str) -> None:
        self._base = uri.replace("webhdfs://", "http://") + "/webhdfs/v1"
        self._http = httpx.Client(trust_env=False, timeout=60.0)

    def ask(self, user: str, method: str, path: str, op: str, **parameters: str) -> httpx.Response:
        query = {"op": op, "user.name": getpass.getuser() if user == _SUPERUSER else user, **parameters}
        answer = self._http.request(method, self._base + path, params=query)
        if answer.status_code == httpx.codes.TEMPORARY_REDIRECT:
            answer = self._http.request(method, answer.headers["location"], content=b"x")
        return answer

    def shown(self, path: str) -> str:
        """Return owner, group and permission, or `missing`."""
        answer = self.ask(_SUPERUSER, "GET", path, "GETFILESTATUS")
        if not answer.is_success:
            return "missing"
        status = answer.json()["FileStatus"]
        owner = _SUPERUSER if status["owner"] == getpass.getuser() else status["owner"]
        return f"{owner}:{status['group']}:{status['permission']}"

    def close(self) -> None:
        self._http.close()


def play(files: WebHdfs, top: str, modes: Sequence[str] = MODES) -> dict[str, str]:
    """Return for each attempt, by its name: the status, and the entry at each name of the path."""
    return {name: outcome for mode in modes for name, outcome in _in_directory(files, top, mode)}


def _in_directory(files: WebHdfs, top: str, mode: str) -> Iterator[tuple[str, str]]:
    for number, attempt in enumerate(ATTEMPTS):
        for user in (*USERS, _SUPERUSER):
            place = f"{top}/{mode}-{number}-{user}"
            files.ask(_SUPERUSER, "PUT", f"{place}/old", "MKDIRS")
            files.ask(_SUPERUSER, "PUT", place, "SETOWNER", owner="ann", group="staff")
            files.ask(_SUPERUSER, "PUT", place, "SETPERMISSION", permission=mode)
            parameters = dict(attempt.parameters)
            if "destination" in parameters:
                parameters["destination"] = f"{place}/{parameters['destination']}"
            answer = files.ask(user, "PUT", f"{place}/{attempt.path}", attempt.op, **parameters)
            said = str(answer.status_code)
            if answer.status_code == httpx.codes.OK and attempt.op == "RENAME":
                said += f" {answer.json()['boolean']}"
            made = [files.shown(f"{place}/{path}") for path in ("a", "a/b", "a/b/f")]
            # Directories in which other users try to write.
            other = "ann" if user == "bob" else "bob"
            into = files.ask(other, "PUT", f"{place}/a/b/other", "CREATE").status_code
            yield f"{user}: {attempt.name} in {mode}", f"{said} {' '.join(made)}; {other}: {into}"


def play_in_root(files: WebHdfs) -> dict[str, str]:
    """Return what users may do in the root of a new file system."""
    root = files.shown("/")
    outcomes = {"root": root}
    for user in (*USERS, _SUPERUSER):
        for op, path in (("MKDIRS", f"/of-{user}"), ("CREATE", f"/by-{user}/a/f")):
            said = files.ask(user, "PUT", path, op).status_code
            first = "/" + path.split("/")[1]
            outcomes[f"{user}: {op} in /"] = f"{said} {files.shown(first)}"
    return outcomes


def with_masked_parents(told: Mapping[str, str]) -> dict[str, str]:
    """Return HDFS's answers, changed for peacefs: it applies the mask to directories that CREATE makes.

    HDFS gives them the permission of the directory above, and applies the mask to the file only.
    """
    return {name: _masked(said) if ": create" in name else said for name, said in told.items()}


def _masked(said: str) -> str:
    outcome, into = said.split("; ")
    status, *made = outcome.split(" ")
    if "missing" in made:
        return said
    *above, file = (each.rsplit(":", 1) for each in made)
    kept = [(who, int(mode, 8) & ~(0o022 & ~int(file[1], 8))) for who, mode in above]
    other, entered = into.split(": ")
    # The other user is neither the owner nor in the group.
    if entered == "201" and not kept[-1][1] & 0o002:
        entered = "403"
    shown = [f"{who}:{mode:o}" for who, mode in kept]
    return f"{status} {' '.join(shown)} {':'.join(file)}; {other}: {entered}"


def recorded() -> dict[str, dict[str, str]]:
    """Return what HDFS answered, `below` a directory and in the `root`."""
    found: dict[str, dict[str, str]] = json.loads(RECORDED.read_text())
    return found


def record(uri: str) -> None:
    """Ask a new HDFS, and store its answers."""
    files = WebHdfs(uri)
    try:
        told = {"root": play_in_root(files), "below": play(files, "/rights")}
    finally:
        files.close()
    RECORDED.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    record(sys.argv[1])
