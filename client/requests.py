"""Name a piece of work in the logs of all services, `with request("nightly-42"): ...`, and trace what is asked."""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Callable

from peacefs.protocol.errors import BadRequest
from peacefs.protocol.trace_context import TraceContext, is_well_formed, new_trace_id, serving
from peacefs.service.trace_options import TraceOptions


def request(id: str | None = None) -> serving[TraceContext]:
    """Have all that is done within, by this thread or task, bear one id, or one that is drawn; `as` gives it.

    Without it every call and every open file has an id of its own. Raises BadRequest for more than 64 characters,
    or others than letters, digits and `._:-`.
    """
    if id is not None and not is_well_formed(id):
        raise BadRequest(f"{id[:80]!r} names no request: it has up to 64 letters, digits and ._:-")
    return serving(TraceContext(id or new_trace_id()))


def trace_requests(to: str, share: float = 1.0) -> Callable[[], None]:
    """Trace what this process asks: to an OTLP collector (`http://host:4318`), or into a file.

    `share` is the part of requests that is traced; services that trace, too, choose the same ones. Call what is
    returned, or end the process, to have the last spans exported. Raises StartupError without peacefs[tracing].
    """
    from peacefs.service.open_telemetry import start_tracing

    stop = start_tracing("client", f"{socket.gethostname()}/{os.getpid()}", TraceOptions(to, share))
    atexit.register(stop)

    def end() -> None:
        atexit.unregister(stop)
        stop()

    return end
