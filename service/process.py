"""Setup of a service process: logging, limits, and an orderly stop on a signal or its parent's death."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import resource
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Final

from peacefs.protocol.limits import MIB
from peacefs.service.log_style import LogStyle
from peacefs.service.trace_options import TraceOptions

from .lifeline import when_parent_dies
from .log_formats import formatter

# Settings of malloc: larger buffers are mapped separately; each heap keeps this much freed memory; number of
# heaps.
heap_buffer_bytes_max: Final = 4 * MIB
heap_kept_bytes: Final = 16 * MIB
heaps_max: Final = 4


#: Functions to call on SIGHUP.
_reloads: list[Callable[[], None]] = []
# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def log_to_stderr(service: str, style: LogStyle) -> None:
    """Log to standard error, one line per event. Libraries log only warnings and errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(style.format, service))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("peacefs").setLevel(style.level.name)


def require_tracing(options: TraceOptions | None) -> None:
    """Check that the packages for tracing are installed, if it is wanted. Raises StartupError."""
    if options is not None:
        import_module(".open_telemetry", __package__)


def trace_to(role: str, name: str, options: TraceOptions | None) -> Callable[[], None]:
    """Start tracing, if it is wanted; return the function that stops it. Raises StartupError."""
    if options is None:
        return _nothing
    from .open_telemetry import start_tracing

    return start_tracing(role, name, options)


def _nothing() -> None:
    """Stop tracing that was never started."""


def raise_open_files_limit() -> None:
    """Raise the limit on open files and connections to the maximum that the system allows."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def keep_freed_memory() -> None:
    """Let malloc keep freed memory of large buffers for reuse, up to a limit.

    By default it goes back to the kernel, and each new buffer causes a page fault per page. Call this before
    starting threads. Does nothing without glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, heaps_max)
        mallopt(_M_TRIM_THRESHOLD, heap_kept_bytes)
        mallopt(_M_MMAP_THRESHOLD, heap_buffer_bytes_max)


def stop_event(parent_fd: int | None) -> asyncio.Event:
    """Return an event that is set when the service should stop. Call it on the service's event loop."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    when_parent_dies(parent_fd, lambda: _set_from_thread(loop, stop))
    return stop


def when_told_to_reload(action: Callable[[], None]) -> None:
    """Call `action` on each SIGHUP, after the actions added earlier. Call this on the service's event loop."""
    _reloads.append(action)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload)


def _reload() -> None:
    for action in _reloads:
        action()


def _set_from_thread(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(stop.set)
