"""The directory of a local cluster: its lock and its contents.

    cluster.json        marks the directory as ours and says how many datanodes it has
    ports.json          the port for agents and datanodes, which stays the same
    coordinator/        the coordinator's directory
    datanode-1/ ...     the datanodes' directories
    logs/*.log          each member's output; the log of the previous run is kept as *.log.1

Two launchers can never use one directory. The lock lasts until every process that inherited `lock_descriptor` has
ended. So members of a killed launcher never run at the same time as those of the next one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from peacefs.client.limits import local_datanodes_default, local_stop_timeout_s
from peacefs.protocol.errors import StartupError
from peacefs.runtime import private_files
from peacefs.runtime.file_locks import lock_within

local_datanodes_max: Final = 64


_FORMAT = 1
# Left behind by a launcher that died while creating the directory.
_STAGED = "cluster.json.new"
_PORTS = "ports.json"
_POLL_S = 0.05


class ClusterDirectory:
    """A directory that this process has locked. Call `release` when no member runs any more."""

    def __init__(self, path: Path, datanodes: int, lock_descriptor: int) -> None:
        self.path = path
        self.datanodes = datanodes
        self.lock_descriptor = lock_descriptor

    @classmethod
    def claim(cls, path: Path, datanodes: int | None) -> ClusterDirectory:
        """Create or recognise the directory, and lock it.

        `datanodes` None means the previous number. The number may grow. A smaller number is refused, because
        chunks whose replicas are on the missing datanodes would be unreadable. Raises StartupError.
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
        return self.path / name

    def new_log(self, name: str) -> Path:
        """Return an empty log for a member's new run. The previous log is kept beside it."""
        log = self.path / "logs" / f"{name}.log"
        if log.exists():
            log.replace(log.with_name(f"{name}.log.1"))
        log.touch(mode=0o600)
        return log

    @property
    def node_port(self) -> int | None:
        """The previous run's port for agents and datanodes; None in a new directory. Raises StartupError."""
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
        """Store the port for the next run. Raises StartupError."""
        ports = self.path / _PORTS
        try:
            _write(ports, {"node_port": port}, self.lock_descriptor)
        except OSError as error:
            raise StartupError(f"cannot write {ports}: {error.strerror}") from None

    def release(self) -> None:
        os.close(self.lock_descriptor)


def _lock(descriptor: int, path: Path) -> None:
    """Lock the directory. Retries for a while, since members of a killed launcher end within moments."""
    if not lock_within(descriptor, local_stop_timeout_s):
        raise StartupError(f"{path} is in use by another local cluster: stop that one, or say --dir for a second")


def _recognise(path: Path) -> int | None:
    """Return the number of datanodes in the directory; None if it is new. Raises StartupError."""
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
    # Members fix the permissions in their own directories.
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
