"""Complete the OpenAPI description: the messages in bodies, the form of errors, and groups of operations."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI

from peacefs.protocol.messages import (
    AbandonLease,
    AllocateChunk,
    CompleteFile,
    FlushFile,
    GetLayout,
    KeepChunks,
    RenewLease,
    ReportCorrupt,
    StateWriteSet,
)
from peacefs.protocol.values.chunk_explanation import ChunkExplanation
from peacefs.protocol.values.file_chunks import FileChunks

_BODIES = (
    AbandonLease,
    AllocateChunk,
    CompleteFile,
    FlushFile,
    GetLayout,
    KeepChunks,
    RenewLease,
    ReportCorrupt,
    StateWriteSet,
)
_TEXT = {"type": "string"}
#: The form of errors, from `protocol.errors.remote_exception`.
_REMOTE_EXCEPTION = {
    "type": "object",
    "required": ["RemoteException"],
    "properties": {
        "RemoteException": {
            "type": "object",
            "required": ["exception", "javaClassName", "message"],
            "properties": dict.fromkeys(("exception", "javaClassName", "message", "peacefsCode"), _TEXT),
        }
    },
}
_ANY_ERROR = {
    "description": "Why it was not done, as WebHDFS tells it.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/RemoteException"}}},
}


#: Answers that pydantic does not describe.
_ANSWERS = (ChunkExplanation, FileChunks)


#: The groups of operations in the order of the page: name, description, and the paths that begin so. The longest
#: beginning counts.
_GROUPS = (
    (
        "cluster",
        "The state of the cluster, its datanodes and balancing.",
        ("/v1/status", "/v1/datanodes", "/v1/balancer"),
    ),
    (
        "scheduling",
        "Who writes when, which writes come back, and dry runs.",
        ("/v1/schedule", "/v1/plan", "/v1/topology"),
    ),
    (
        "files",
        "Checks of files, their chunks, and changes that WebHDFS lacks.",
        (
            *("/v1/fsck", "/v1/chunks", "/v1/copies", "/v1/snapshots", "/v1/exchanges"),
            *("/v1/files/chunks", "/v1/files/recover-lease", "/v1/files/truncate", "/v1/files/concat"),
        ),
    ),
    ("checkpoints", "Checkpoints of Spark queries and their runs.", ("/v1/checkpoints",)),
    ("queries", "Queries that agents keep running.", ("/v1/queries",)),
    ("security", "Tokens, and credentials of datanodes.", ("/v1/credentials", "/v1/tokens")),
    ("metadata", "Backups, restores, and coordinators that take over.", ("/v1/metadata", "/v1/coordinator")),
    ("internal", "Calls of peacefs's own clients and services. They change without notice.", ("/v1/",)),
)
#: Internal calls below the paths of another group.
_INTERNAL = ("/v1/files/", "/v1/topology/probes", "/v1/checkpoints/reports")


def group_of(path: str) -> str:
    """Return the group of an operation."""
    beginnings = {begin: name for name, _, begins in _GROUPS for begin in begins}
    beginnings |= dict.fromkeys(_INTERNAL, "internal")
    return beginnings[max((begin for begin in beginnings if path.startswith(begin)), key=len)]


def documented_answer(name: str, description: str) -> dict[str, Any]:
    """Return the description of an answer that is one of `_ANSWERS`."""
    schema = {"$ref": f"#/components/schemas/{name}"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def complete_description(app: FastAPI) -> None:
    """Add the definitions that bodies refer to, because tools reject a dangling reference.

    Also give every operation our form of errors, in place of the framework's validation errors.
    """
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        described = describe()
        _bodies, parts = msgspec.json.schema_components(
            _BODIES + _ANSWERS, ref_template="#/components/schemas/{name}"
        )
        schemas = described.setdefault("components", {}).setdefault("schemas", {})
        for name, part in parts.items():
            schemas.setdefault(name, part)
        schemas["RemoteException"] = _REMOTE_EXCEPTION
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        described["tags"] = [{"name": name, "description": meaning} for name, meaning, _ in _GROUPS]
        for path, operations in described["paths"].items():
            for operation in operations.values():
                operation["tags"] = [group_of(path)]
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = _ANY_ERROR
        return described

    app.openapi = openapi  # type: ignore[method-assign]
