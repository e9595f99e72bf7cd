"""Executes `peacefs mount`: checks the requirements, and serves in the foreground or in a child process."""

from __future__ import annotations

import logging
import logging.handlers
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from peacefs.client.control.addresses import parse_address
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import BadRequest, PeacefsError, StartupError
from peacefs.runtime.tls_variables import CA_FILE_VARIABLE

from .errors import report_error, report_system_error
from .quotas import parse_size

#: Options of mount(8), or for it, which are ignored here.
_OF_MOUNT: Final = ("_netdev", "auto", "defaults", "nofail", "noauto", "nouser", "rw", "user", "users")
#: Parameters of the binding to libfuse, which would take an option of this name for itself.
_OF_BINDING: Final = ("encoding", "errors", "foreground", "mountpoint", "operations", "raw_fi")
_DEVICE: Final = Path("/dev/fuse")
_SYSLOG: Final = Path("/dev/log")
_READY: Final = b"ready"
#: libfuse's default number of threads. Without a limit on idle ones, libfuse 3.12 to 3.16 print a warning.
_IDLE_THREADS_MAX: Final = 10


@dataclass(frozen=True)
class MountRequest:
    directory: Path
    coordinator: str
    background: bool
    staging: Path | None
    staging_size: str
    token_file: str | None = None
    ca_file: str | None = None
    #: Options that are passed to libfuse and the kernel.
    fuse_options: tuple[str, ...] = ()

    def with_options(self, texts: Sequence[str]) -> MountRequest:
        """Apply the options after `-o`, as mount(8) gives them."""
        request = self
        for option in (each.strip() for text in texts for each in text.split(",")):
            name, _, value = option.partition("=")
            match name:
                case "token_file":
                    request = replace(request, token_file=value)
                case "ca_file":
                    request = replace(request, ca_file=value)
                case "staging":
                    request = replace(request, staging=Path(value))
                case "staging_size":
                    request = replace(request, staging_size=value)
                case "":
                    pass
                case _ if name in _OF_MOUNT or name.startswith(("x-", "comment")):
                    pass
                case _:
                    request = replace(request, fuse_options=(*request.fuse_options, option))
        return request


def run_mount(request: MountRequest) -> int:
    """Mount and serve until unmounted; return the exit status. In the background, return when mounted."""
    request = _checked(request)
    if not request.background:
        return _serve(request, lambda: _say_ready(request))
    readable, writable = os.pipe()
    child = os.fork()
    if child:
        os.close(writable)
        with os.fdopen(readable, "rb") as told:
            if told.read() == _READY:
                return 0
        _, ended = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(ended) or 1
    os.close(readable)
    os.setsid()
    status = 1
    try:
        status = _serve(request, lambda: _leave_terminal(writable))
    except PeacefsError as error:
        report_error("mount", error.message)
    except OSError as error:
        report_system_error("mount", error)
    except ModuleNotFoundError as error:
        report_error("mount", f"this needs {error.name}: pip install 'peacefs[mount]'")
    os._exit(status)


def _checked(request: MountRequest) -> MountRequest:
    """Return the request with absolute paths. Raises StartupError or OSError if it cannot be mounted here."""
    if not _DEVICE.exists():
        raise StartupError("this machine has no /dev/fuse: `modprobe fuse`; for a container, --device /dev/fuse")
    directory = Path(os.path.abspath(request.directory))  # noqa: PTH100 (a broken mount cannot be resolved)
    try:
        is_directory = directory.is_dir()
        is_mounted = is_directory and directory.is_mount()
    except OSError as error:
        raise StartupError(f"{directory}: {error.strerror}: `umount {directory}` first") from None
    if not is_directory:
        raise StartupError(f"{directory} is not a directory that exists: `mkdir {directory}`")
    if is_mounted:
        raise StartupError(f"something is mounted on {directory} already: `umount {directory}`")
    staging = Path(request.staging or tempfile.gettempdir()).resolve()
    if not staging.is_dir():
        raise StartupError(f"the staging directory {staging} does not exist")
    if staging.is_relative_to(directory):
        raise StartupError(f"the staging directory {staging} is below {directory}, where files are mounted")
    for option in request.fuse_options:
        if option.partition("=")[0] in _OF_BINDING:
            raise BadRequest(f"{option} is no option of a mount: leave it out after -o")
    if parse_size(request.staging_size) == 0:
        raise BadRequest("--staging-size must not be 0")
    return replace(request, directory=directory, staging=staging)


def _serve(request: MountRequest, ready: Callable[[], None]) -> int:
    from peacefs.client.mount.session import serve
    from peacefs.client.mount.stage import StagingRoom
    from peacefs.client.mount.tree import MountedTree

    logging.basicConfig(format="peacefs: mount: %(message)s", level=logging.WARNING)
    if request.ca_file is not None:
        os.environ[CA_FILE_VARIABLE] = request.ca_file
    address = parse_address(request.coordinator)
    assert request.staging is not None
    with PeaceFileSystem(address.http, token_file=request.token_file) as files:
        files.status("/")
        tree = MountedTree(files, StagingRoom(request.staging, parse_size(request.staging_size)), os.getuid())
        # With the default handlers, libfuse unmounts on these signals.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        serve(tree, str(request.directory), _fuse_options(request, address.http), ready)
    return 0


def _fuse_options(request: MountRequest, address: str) -> dict[str, Any]:
    # Escape commas, which would begin another option.
    options: dict[str, Any] = {
        "fsname": address.replace(",", "\\,"),
        "subtype": "peacefs",
        "max_idle_threads": _IDLE_THREADS_MAX,
    }
    for option in request.fuse_options:
        name, is_valued, value = option.partition("=")
        options[name] = value if is_valued else True
    if "allow_other" in options:
        # Without this option, every user would have the permissions of this one.
        options["default_permissions"] = True
    return options


def _say_ready(request: MountRequest) -> None:
    address = parse_address(request.coordinator).http
    sys.stderr.write(
        f"{address} is mounted on {request.directory}; Ctrl-C or `umount {request.directory}` ends it\n"
    )
    sys.stderr.flush()


def _leave_terminal(writable: int) -> None:
    """Report to the waiting command that the mount is ready, and detach from its terminal. Errors go to syslog."""
    if _SYSLOG.exists():
        handler = logging.handlers.SysLogHandler(str(_SYSLOG))
        handler.setFormatter(logging.Formatter("peacefs: mount: %(message)s"))
        logging.getLogger().handlers = [handler]
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.write(writable, _READY)
    os.close(writable)
