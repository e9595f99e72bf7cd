"""What the description of REST needs beside the routes: the parts of those bodies that are messages."""

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
    RenewLease,
    ReportCorrupt,
    StateWriteSet,
)

_BODIES = (
    AbandonLease,
    AllocateChunk,
    CompleteFile,
    FlushFile,
    GetLayout,
    RenewLease,
    ReportCorrupt,
    StateWriteSet,
)


def describe_parts(app: FastAPI) -> None:
    """What those bodies refer to is told with them: a reference to nothing makes tools give up."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        described = describe()
        _bodies, parts = msgspec.json.schema_components(_BODIES, ref_template="#/components/schemas/{name}")
        schemas = described.setdefault("components", {}).setdefault("schemas", {})
        for name, part in parts.items():
            schemas.setdefault(name, part)
        return described

    app.openapi = openapi  # type: ignore[method-assign]
