"""The process of a service: logging, limits, and an orderly stop by a signal or its parent's death."""

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

# Buffers up to this size come from so many heaps, each of which keeps so much of what was freed.
heap_buffer_bytes_max: Final = 4 * MIB
heap_kept_bytes: Final = 16 * MIB
heaps_max: Final = 4


#: Called at a SIGHUP.
_reloads: list[Callable[[], None]] = []
# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def log_to_stderr(service: str, style: LogStyle) -> None:
    """One line an event on standard error. Libraries speak from WARNING up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(style.format, service))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("peacefs").setLevel(style.level.name)


def require_tracing(options: TraceOptions | None) -> None:
    """Raises StartupError if traces are wanted, and the packages for them are not there."""
    if options is not None:
        import_module(".open_telemetry", __package__)


def trace_to(role: str, name: str, options: TraceOptions | None) -> Callable[[], None]:
    """Begin to trace, if that is wanted; return what ends it. Raises StartupError without the packages for it."""
    if options is None:
        return _nothing
    from .open_telemetry import start_tracing

    return start_tracing(role, name, options)


def _nothing() -> None:
    """End what was not begun."""


def raise_open_files_limit() -> None:
    """As many open files and connections as the system lets this process have."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def keep_freed_memory() -> None:
    """Keep the memory of large buffers for the next ones, up to a bound.

    It went back to the kernel, and came anew page by page. To be called before there are threads; without glibc it
    does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, heaps_max)
        mallopt(_M_TRIM_THRESHOLD, heap_kept_bytes)
        mallopt(_M_MMAP_THRESHOLD, heap_buffer_bytes_max)


def stop_event(parent_fd: int | None) -> asyncio.Event:
    """An event that is set when the service should stop. To be called on the service's loop."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    when_parent_dies(parent_fd, lambda: _set_from_thread(loop, stop))
    return stop


def when_told_to_reload(action: Callable[[], None]) -> None:
    """Has `action` done at every SIGHUP, after those that were asked for before. On the service's loop."""
    _reloads.append(action)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload)


def _reload() -> None:
    for action in _reloads:
        action()


def _set_from_thread(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(stop.set)
