"""Executes `peacefs datanodes credentials`, `revoke`, `readmit` and `forget`, on the keys of datanode ids."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import BadRequest

from .listing import print_line
from .presentation import local_minute
from .report import table

_HEADINGS = ("DATANODE", "CREDENTIAL", "ENROLLED", "REVOKED")


class Change(StrEnum):
    """An action on a credential; the last part of the route."""

    REVOKE = "revoke"
    READMIT = "readmit"
    FORGET = "forget"


_DONE = {
    Change.REVOKE: "is revoked",
    Change.READMIT: "may register again",
    Change.FORGET: "is enrolled anew when it registers next",
}


def list_credentials(coordinator: str, *, as_json: bool) -> None:
    """Print one line per datanode id. Raises PeacefsError."""
    with PeaceFileSystem(coordinator) as files:
        credentials = files.datanode_credentials()
    for line in (
        map(_json, credentials) if as_json else table([_HEADINGS, *map(_row, credentials)], len(_HEADINGS))
    ):
        print_line(line)


def change(coordinator: str, names: list[str], wanted: Change, *, as_json: bool) -> None:
    """Apply a change to each id, which may be abbreviated. Raises BadRequest before any change."""
    with PeaceFileSystem(coordinator) as files:
        known = [each["node"] for each in files.datanode_credentials()]
        for node in [_resolve(name, known) for name in names]:
            credential = files.decide_about_credential(node, wanted)
            print_line(_json(credential) if as_json else f"{node} {_DONE[wanted]}")


def _resolve(name: str, known: list[str]) -> str:
    found = [name] if name in known else [node for node in known if node.startswith(name)]
    if len(found) != 1:
        raise BadRequest(f"{'several datanodes begin with' if found else 'no datanode is enrolled as'} {name!r}")
    return found[0]


def _row(credential: dict[str, Any]) -> tuple[str, ...]:
    revoked_ms = credential["revoked_ms"]
    return (
        credential["node"],
        credential["fingerprint"],
        local_minute(credential["enrolled_ms"]),
        local_minute(revoked_ms) if revoked_ms is not None else "-",
    )


def _json(credential: dict[str, Any]) -> str:
    return msgspec.json.encode(credential).decode()
