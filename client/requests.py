"""Sets request ids for the logs of all services (`with request("nightly-42"): ...`), and traces requests."""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Callable

from peacefs.protocol.errors import BadRequest
from peacefs.protocol.trace_context import TraceContext, is_well_formed, new_trace_id, serving
from peacefs.service.trace_options import TraceOptions


def request(id: str | None = None) -> serving[TraceContext]:
    """Use one request id for everything that this thread or task does in the block. `as` gives the context.

    The id is random unless given. Outside such a block, each call and each open file gets its own id. Raises
    BadRequest for an id longer than 64 characters, or with characters other than letters, digits and `._:-`.
    """
    if id is not None and not is_well_formed(id):
        raise BadRequest(f"{id[:80]!r} names no request: it has up to 64 letters, digits and ._:-")
    return serving(TraceContext(id or new_trace_id()))


def trace_requests(to: str, share: float = 1.0) -> Callable[[], None]:
    """Trace the requests of this process, to an OTLP collector (`http://host:4318`) or into a file.

    `share` is the fraction of requests to trace; services that trace choose the same requests. Call the returned
    function, or end the process, to export the last spans. Raises StartupError without peacefs[tracing].
    """
    from peacefs.service.open_telemetry import start_tracing

    stop = start_tracing("client", f"{socket.gethostname()}/{os.getpid()}", TraceOptions(to, share))
    atexit.register(stop)

    def end() -> None:
        atexit.unregister(stop)
        stop()

    return end
