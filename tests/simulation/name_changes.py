"""Changes of the namespace that clients of the simulated cluster request, each with its own id."""

from __future__ import annotations

from peacefs.coordinator.metadata.model import RenameMode
from peacefs.coordinator.operations.files import Files
from peacefs.protocol.messages import Message


class Change(Message, frozen=True):
    """A change. `what` is one of the kinds in `make_change`; `other` is a second name, path or number."""

    what: str
    path: str
    user: str
    request_id: str
    other: str = ""
    number: int = 0


async def make_change(files: Files, change: Change) -> None:
    """Make the change. Raises the errors of the coordinator."""
    path, user, asked = change.path, change.user, change.request_id
    match change.what:
        case "mkdirs":
            await files.names.mkdirs(path, user, change.number, asked)
        case "own":
            await files.names.set_owner(path, user, change.other, None, asked)
        case "delete":
            await files.names.delete(path, True, user, asked)
        case "move":
            await files.names.rename(path, change.other, user, RenameMode.STRICT, asked)
        case "replace":
            await files.names.rename(path, change.other, user, RenameMode.OVERWRITE, asked)
        case "truncate":
            await files.reshaping.truncate(path, change.number, user, asked)
        case "allow snapshots":
            await files.snapshots.allow(path, user, asked)
        case "take snapshot":
            await files.snapshots.create(path, user, change.other, asked)
        case "drop snapshot":
            await files.snapshots.delete(path, user, change.other, asked)
        case "restore snapshot":
            await files.snapshots.restore(path, user, change.other, asked)
        case "copy":
            await files.copying.copy(path, change.other, user, request_id=asked)
        case "limit":
            await files.limiting.set_quota(path, user, change.number, int(change.other), asked)
        case "join":
            await files.reshaping.concat(path, [change.other], user, asked)
        case "exchange":
            await files.names.exchange([(path, change.other)], user, asked)
        case "keep":
            await files.names.set_replication(path, user, change.number, asked)
        case "end run":
            await files.fencing.end(path, user, asked)
        case _:
            raise AssertionError(f"nobody knows how to {change.what}")
