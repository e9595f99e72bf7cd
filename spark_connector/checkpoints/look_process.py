"""The process that inspects checkpoints for the coordinator, which knows nothing of Spark and must not wait.

It reads a request as JSON from stdin, and writes `{"answer": ...}` or an error to stdout. It is an ordinary client
of the coordinator, with the rights of the user who asked.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from typing import Any, Final

import msgspec

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import AccessDenied, BadRequest, CheckpointDamaged, FileNotFound, PeacefsError
from peacefs.protocol.limits import MIB, checkpoint_look_timeout_s

from .catalogue import describe, find_all, find_families, find_roots, read_layout, summarise
from .history import latest_batches
from .inspection import Inspection
from .tree import PeaceTree
from .unit_checkpoints import summarise_units
from .verification import verify

checkpoint_look_bytes_max: Final = 64 * MIB


class InspectionRequest(msgspec.Struct, frozen=True):
    """A request to inspect `path`, or with `all_below` every checkpoint at or below it.

    With `partial`, skips what the user may not list. `view` selects something other than a summary: the latest
    `batches` of the checkpoint, its `verdict`, the `units` of dataflows, or the `families` of checkpoints.
    """

    coordinator: str
    user: str
    path: str
    all_below: bool
    view: str = ""
    partial: bool = False
    #: The user's token; empty if the cluster does not authenticate.
    token: str = ""
    #: The CA to trust over TLS.
    ca_file: str = ""


def carry_out(question: bytes) -> bytes:
    """Answer one request. Return the answer, or the error, as JSON."""
    asked = msgspec.json.decode(question, type=InspectionRequest)
    try:
        with PeaceFileSystem(
            asked.coordinator, asked.user, token=asked.token, ca_file=asked.ca_file or None
        ) as files:
            tree = PeaceTree(files)
            answer = _answer(tree, asked)
        encoded = msgspec.json.encode({"answer": answer})
        if len(encoded) > checkpoint_look_bytes_max:
            raise BadRequest(f"the answer has {len(encoded)} bytes: ask for a directory further down")
    except PeacefsError as error:
        return msgspec.json.encode({"code": error.code, "message": error.message})
    return encoded


def _answer(tree: PeaceTree, asked: InspectionRequest) -> Any:
    match asked.view:
        case "batches":
            return latest_batches(read_layout(tree, asked.path))
        case "verdict":
            return verify(Inspection(tree, read_layout(tree, asked.path)))
        case "units":
            return _units(tree, asked.path, partial=asked.partial)
        case "families":
            return find_families(tree, [asked.path])
    return _all(tree, asked.path, partial=asked.partial) if asked.all_below else describe(tree, asked.path)


def _gone(partial: bool) -> contextlib.suppress:
    """Ignore what vanishes between two looks, and with `partial` what may not be read."""
    return contextlib.suppress(FileNotFound, CheckpointDamaged, *([AccessDenied] if partial else []))


def _units(tree: PeaceTree, top: str, *, partial: bool) -> list[Any]:
    found = []
    for root, of_units in find_all(tree, top, partial=partial):
        if of_units:
            with _gone(partial):
                found += [msgspec.to_builtins(each) for each in summarise_units(tree, root)]
    return found


def _all(tree: PeaceTree, top: str, *, partial: bool) -> list[Any]:
    found = []
    for root in find_roots(tree, top, partial=partial):
        with _gone(partial):
            found.append(msgspec.to_builtins(summarise(Inspection(tree, read_layout(tree, root)))))
    return found


def _main() -> None:
    # The coordinator may be gone, and then no one would kill this process.
    seconds = int(2 * checkpoint_look_timeout_s)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    sys.stdout.buffer.write(carry_out(sys.stdin.buffer.read()))


if __name__ == "__main__":
    _main()
