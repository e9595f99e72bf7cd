"""Name a piece of work in the logs of all services, `with request("nightly-42"): ...`."""

from __future__ import annotations

from peacefs.protocol.errors import BadRequest
from peacefs.protocol.runtime.trace_context import TraceContext, is_well_formed, new_trace_id, serving


def request(id: str | None = None) -> serving[TraceContext]:
    """Have all that is done within, by this thread or task, bear one id, or one that is drawn; `as` gives it.

    Without it every call and every open file has an id of its own. Raises BadRequest for more than 64 characters,
    or others than letters, digits and `._:-`.
    """
    if id is not None and not is_well_formed(id):
        raise BadRequest(f"{id[:80]!r} names no request: it has up to 64 letters, digits and ._:-")
    return serving(TraceContext(id or new_trace_id()))
