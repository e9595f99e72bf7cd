"""The directory of a local cluster: who may use it, and what lies where.

    cluster.json        marks the directory as ours and says how many datanodes it has
    ports.json          the port for agents and datanodes, which stays the same
    coordinator/        the coordinator's directory
    datanode-1/ ...     the datanodes' directories
    logs/*.log          what each member says; the log of the run before is kept as *.log.1

Knows no process. Two launchers can never use one directory: a lock on it lasts as long as any process that
inherited `lock_descriptor`, so that not even members of a launcher that was killed meet their successors.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Final

from peacefs.client.limits import local_datanodes_default, local_stop_timeout_s
from peacefs.protocol.errors import StartupError
from peacefs.runtime import private_files

local_datanodes_max: Final = 64


_FORMAT = 1
# Left behind by a launcher that died while it made the directory.
_STAGED = "cluster.json.new"
_PORTS = "ports.json"
_POLL_S = 0.05


class ClusterDirectory:
    """A claimed directory. `release` it when no member runs any more."""

    def __init__(self, path: Path, datanodes: int, lock_descriptor: int) -> None:
        self.path = path
        self.datanodes = datanodes
        self.lock_descriptor = lock_descriptor

    @classmethod
    def claim(cls, path: Path, datanodes: int | None) -> ClusterDirectory:
        """Makes or recognises the directory and locks it.

        `datanodes` None means as many as it had. It may grow; fewer are refused, because chunks whose replicas
        lie on the missing ones would be lost to their readers. Raises StartupError.
        """
        path = path.expanduser().absolute()
        try:
            private_files.make_directory(path)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise StartupError(f"cannot use the directory {path}: {error.strerror}") from None
        try:
            _lock(descriptor, path)
            had = _recognise(path)
            wanted = _decide(path, had, datanodes)
            if wanted != had:
                _mark(path, wanted, descriptor)
            private_files.make_directory(path / "logs")
            private_files.mend(path, _is_ours)
        except OSError as error:
            os.close(descriptor)
            raise StartupError(f"cannot use the directory {path}: {error.strerror}") from None
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, wanted, descriptor)

    def member(self, name: str) -> Path:
        """Return the directory of a member's data."""
        return self.path / name

    def new_log(self, name: str) -> Path:
        """An empty log for a member's run; the one before is kept beside it."""
        log = self.path / "logs" / f"{name}.log"
        if log.exists():
            log.replace(log.with_name(f"{name}.log.1"))
        log.touch(mode=0o600)
        return log

    @property
    def node_port(self) -> int | None:
        """The port for agents and datanodes of the run before; None in a new directory. Raises StartupError."""
        ports = self.path / _PORTS
        try:
            found = json.loads(ports.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            found = None
        except OSError as error:
            raise StartupError(f"cannot read {ports}: {error.strerror}") from None
        match found:
            case {"node_port": int(port)} if 0 < port < 65536:
                return port
        raise StartupError(f"{ports} is damaged: remove it, or say --node-port")

    def keep_node_port(self, port: int) -> None:
        """Remember it for the next run. Raises StartupError."""
        ports = self.path / _PORTS
        try:
            _write(ports, {"node_port": port}, self.lock_descriptor)
        except OSError as error:
            raise StartupError(f"cannot write {ports}: {error.strerror}") from None

    def release(self) -> None:
        os.close(self.lock_descriptor)


def _lock(descriptor: int, path: Path) -> None:
    """Waits a little: members whose launcher was killed are gone within moments."""
    deadline = time.monotonic() + local_stop_timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise StartupError(
                    f"{path} is in use by another local cluster: stop that one, or say --dir for a second"
                ) from None
            time.sleep(_POLL_S)


def _recognise(path: Path) -> int | None:
    """Return how many datanodes the directory has; None when it is new."""
    mark = path / "cluster.json"
    try:
        found = json.loads(mark.read_bytes())
    except FileNotFoundError:
        if any(entry.name != _STAGED for entry in path.iterdir()):
            raise StartupError(
                f"{path} holds files but no local cluster: say --dir with an empty or new directory"
            ) from None
        return None
    except ValueError:
        raise StartupError(f"{mark} is damaged: restore it, or say another --dir") from None
    match found:
        case {"format": 1, "datanodes": int(datanodes)} if 1 <= datanodes <= local_datanodes_max:
            return datanodes
        case {"format": int(form)} if form > _FORMAT:
            raise StartupError(f"{path} was made by a newer peacefs: use that one, or say another --dir")
        case _:
            raise StartupError(f"{mark} is damaged: restore it, or say another --dir")


def _is_ours(entry: Path) -> bool:
    # Members mend what is in their own directories.
    return entry.name in ("cluster.json", _PORTS, "logs")


def _decide(path: Path, had: int | None, asked: int | None) -> int:
    wanted = asked if asked is not None else had or local_datanodes_default
    if not 1 <= wanted <= local_datanodes_max:
        raise StartupError(f"{wanted} datanodes are out of range: 1 to {local_datanodes_max}")
    if had is not None and wanted < had:
        raise StartupError(
            f"{path} has {had} datanodes, and {wanted} might not hold every chunk: "
            f"say --datanodes {had} or more, or another --dir"
        )
    return wanted


def _mark(path: Path, datanodes: int, directory: int) -> None:
    _write(path / "cluster.json", {"format": _FORMAT, "datanodes": datanodes}, directory)


def _write(path: Path, contents: dict[str, int], directory: int) -> None:
    staged = path.with_name(f"{path.name}.new")
    with open(staged, "w", opener=private_files.opener) as file:
        json.dump(contents, file)
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)
    os.fsync(directory)
