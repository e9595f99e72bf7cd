"""The owner of a store directory: it belongs to one datanode of one cluster, and one process at a time may use it.

Plain system calls: they run before anything else, and again only when the epoch or the commit changes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
from crc32c import crc32c

from peacefs.datanode.store.disk_faults import is_of_the_medium
from peacefs.protocol.credentials import Credential
from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import DiskFault, PeacefsError, StartupError
from peacefs.protocol.ids import NodeId
from peacefs.runtime import private_files

log = logging.getLogger("peacefs.datanode")

LAYOUT_VERSION = 1
_IDENTITY = "identity.json"
_IDENTITY_IN_THE_MAKING = "identity.json.new"
_CREDENTIAL = "credential.key"
_LOCK = "lock"
_COMMIT = "commit.seen"
_COMMIT_RECORD = struct.Struct(">QI")
# Entries of a directory that counts as unused, including the remains of an interrupted claim.
_HARMLESS = {_IDENTITY_IN_THE_MAKING, _LOCK, "lost+found"}


class _Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    layout_version: int
    cluster: str
    node: NodeId
    epoch_seen: int = 0


class _LayoutVersion(msgspec.Struct, frozen=True):
    """The only field that every version of identity.json has."""

    layout_version: int


class StoreDirectory:
    """A datanode's identity in a directory that this process has locked. `claim` creates it.

    It also keeps the credential, and the highest epoch and commit that a coordinator has announced.
    """

    def __init__(self, path: Path, identity: _Identity) -> None:
        self._path = path
        self._identity = identity
        self._commit_seen = _read_commit(path)

    @property
    def node(self) -> NodeId:
        return self._identity.node

    @property
    def cluster(self) -> str:
        return self._identity.cluster

    @property
    def epoch_seen(self) -> int:
        """The highest epoch in which a coordinator accepted this datanode."""
        return self._identity.epoch_seen

    def remember_epoch(self, epoch: int) -> None:
        """Store an epoch durably, unless a higher one is known."""
        if epoch > self.epoch_seen:
            self._identity = msgspec.structs.replace(self._identity, epoch_seen=epoch)
            _write_identity(self._path, self._identity)

    def credential(self) -> Credential:
        """Return the datanode's own credential; create it if missing. Raises StartupError, DiskFault."""
        file = self._path / _CREDENTIAL
        try:
            if not file.exists():
                _write_privately(file, Credential.make().to_pem())
            return Credential.from_pem(file.read_bytes())
        except OSError as error:
            raise _refusal(f"cannot use the credential {file}", error) from None
        except ValueError:
            raise StartupError(
                f"{file} is damaged: put it back from a copy, or remove it and have the datanode enrolled anew "
                f"with `peacefs datanodes forget {self.node}`"
            ) from None

    @property
    def commit_seen(self) -> int:
        """The highest number of a commit that a coordinator has reported as durable."""
        return self._commit_seen

    def remember_commit(self, commit: int) -> None:
        """Store a commit's number, unless a higher one is known.

        It is written at most once per second and never synced. It survives the end of the process. After a power
        cut it may be older; then this datanode may fail to prove that the coordinator has lost commits.
        """
        if commit > self._commit_seen:
            self._commit_seen = commit
            try:
                _write_commit(self._path, commit)
            except OSError as error:
                log.warning("cannot remember the coordinator's last commit in %s: %s", self._path, error.strerror)

    @staticmethod
    def cluster_of(path: Path) -> str | None:
        """Return the cluster that a directory belongs to; None if it is still empty.

        Raises StartupError, and DiskFault if the disk itself has failed.
        """
        identity = _read_identity(path)
        return None if identity is None else identity.cluster

    @staticmethod
    @contextlib.contextmanager
    def claim(
        path: Path, cluster: str, new_node: NodeId, *, may_be_read_only: bool = False
    ) -> Iterator[StoreDirectory]:
        """Lock the directory. If it is empty or missing, it becomes `new_node`'s.

        Raises StartupError if the directory belongs to another cluster, is in use, is damaged, or has a newer
        layout. Also raises it if the directory cannot be written to, unless `may_be_read_only` is set and it has
        an identity. Raises DiskFault if the disk itself has failed.
        """
        _read_identity(path)  # Checked first, so that a foreign directory does not even get a lock file.
        try:
            _make_durably(path)
            lock = _open_lock(path / _LOCK, may_be_read_only=may_be_read_only)
        except OSError as error:
            raise _refusal(f"cannot use {path} as a datanode directory", error) from None
        try:
            _lock(lock, path)
            identity = _load_or_create(path, cluster, new_node)
            _close_to_others(path)
            yield StoreDirectory(path, identity)
        finally:
            os.close(lock)


def _make_durably(path: Path) -> None:
    missing = [each for each in (path, *path.parents) if not each.exists()]
    private_files.make_directory(path)
    for each in missing:
        _sync_directory(each.parent)


def _close_to_others(path: Path) -> None:
    """Forbid other users to enter the directory, which also protects everything in it."""
    try:
        private_files.mend(path, lambda entry: entry.name != "lost+found")
    except OSError as error:
        raise _refusal(f"cannot use {path} as a datanode directory", error) from None


def _open_lock(path: Path, *, may_be_read_only: bool) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.EROFS or not may_be_read_only:
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _lock(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StartupError(f"another datanode is using {path}") from None
    except OSError as error:
        raise _refusal(f"cannot lock {path}", error) from None


def _load_or_create(path: Path, cluster: str, new_node: NodeId) -> _Identity:
    identity = _read_identity(path)
    if identity is None:
        identity = _Identity(LAYOUT_VERSION, cluster, new_node)
        try:
            _write_identity(path, identity)
        except OSError as error:
            raise _refusal(f"cannot write to {path}", error) from None
    elif identity.cluster != cluster:
        raise StartupError(
            f"{path} belongs to cluster {identity.cluster}, the coordinator is of cluster {cluster}: "
            f"choose an empty directory, or the coordinator that this one belongs to"
        )
    return identity


def _read_identity(path: Path) -> _Identity | None:
    """Read the identity; None if the directory is empty or missing."""
    try:
        raw = (path / _IDENTITY).read_bytes()
    except FileNotFoundError:
        _refuse_foreign(path)
        return None
    except OSError as error:
        raise _refusal(f"cannot read {path / _IDENTITY}", error) from None
    try:
        layout_version = msgspec.json.decode(raw, type=_LayoutVersion).layout_version
        if layout_version > LAYOUT_VERSION:
            raise StartupError(
                f"{path} was written by a newer peacefs (layout {layout_version}, this one knows {LAYOUT_VERSION})"
            )
        return msgspec.json.decode(raw, type=_Identity)
    except UNREADABLE as error:
        raise StartupError(f"{path / _IDENTITY} is damaged: {error}") from None


def _refuse_foreign(path: Path) -> None:
    try:
        names = {entry.name for entry in path.iterdir()}
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refusal(f"cannot use {path} as a datanode directory", error) from None
    if names - _HARMLESS:
        raise StartupError(
            f"not a peacefs datanode directory: {path} (it has no {_IDENTITY}); choose an empty one"
        )


def _refusal(what: str, error: OSError) -> PeacefsError:
    kind = DiskFault if is_of_the_medium(error) else StartupError
    return kind(f"{what}: {error.strerror or error}")


def _write_identity(path: Path, identity: _Identity) -> None:
    """Replace identity.json atomically and durably."""
    temporary = path / _IDENTITY_IN_THE_MAKING
    with open(temporary, "wb", opener=private_files.opener) as file:
        file.write(msgspec.json.format(msgspec.json.encode(identity)))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path / _IDENTITY)
    _sync_directory(path)


def _write_privately(file: Path, content: bytes) -> None:
    """Write a file atomically and durably, readable only by this user."""
    temporary = file.with_name(file.name + ".new")
    temporary.unlink(missing_ok=True)
    with open(temporary, "xb", opener=private_files.opener) as staged:
        staged.write(content)
        staged.flush()
        os.fsync(staged.fileno())
    temporary.replace(file)
    _sync_directory(file.parent)


def _read_commit(path: Path) -> int:
    """Read the last commit; 0 if it is unreadable. Then this datanode cannot witness a loss."""
    try:
        commit, check = _COMMIT_RECORD.unpack((path / _COMMIT).read_bytes())
    except (OSError, struct.error):
        return 0
    return int(commit) if check == crc32c(_COMMIT_RECORD.pack(commit, 0)) else 0


def _write_commit(path: Path, commit: int) -> None:
    descriptor = os.open(path / _COMMIT, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, _COMMIT_RECORD.pack(commit, crc32c(_COMMIT_RECORD.pack(commit, 0))), 0)
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
