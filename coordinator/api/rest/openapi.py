"""Complete the OpenAPI description: the messages in bodies, and the form of errors."""

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
        for operations in described["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = _ANY_ERROR
        return described

    app.openapi = openapi  # type: ignore[method-assign]
