"""An interpreter that has imported what `peacefs` imports, and forks where another would begin anew.

    python -P fork_server.py ROLE DESCRIPTOR

Beginning anew costs half a second of processor time for imports alone, and tests start hundreds of services and
commands. `prepared_starts` asks, over the socket of that descriptor: a request is JSON with the descriptors that
the new process is to have; the answer is its pid. What is forked runs the real entry point, `python -m peacefs` or
the installed command, with a working directory, environment, arguments and descriptors of its own.

The new process is made a child of the one that asked, not of this one (CLONE_PARENT): who asked waits for it,
and is told of its end, as of a process that it has started itself. This one ends when the socket does.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import platform
import resource
import runpy
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NamedTuple

_EVERYWHERE = ("peacefs.start", "peacefs.command", "encodings.idna")
#: The modules of each role, and with `.*` all modules of a package; what follows a colon is called. A coordinator
#: that had imported a datanode would show the metrics of both. What is imported late and by few (Spark, Arrow,
#: NumPy) is left to them; all nodes of dataflows need Arrow and the kernels of paged state.
PREPARED = {
    "coordinator": (
        *_EVERYWHERE,
        "peacefs.coordinator.process",
        "peacefs.coordinator.metadata.sqlite.*",
        # Modules that uvicorn and FastAPI import when they are first used.
        "fastapi_offline",
        "uvicorn.protocols.http.httptools_impl",
    ),
    "datanode": (*_EVERYWHERE, "peacefs.datanode.service", "uvicorn.protocols.http.httptools_impl"),
    "command": (
        *_EVERYWHERE,
        "peacefs.client.filesystem",
        "peacefs.client.command_line.*",
        "peacefs.client.local_cluster.*",
    ),
    # A node begins with a call of each kernel, which finds them loaded.
    "node": (
        "encodings.idna",
        "peacefs.dataflow.hosts.links",
        "peacefs.dataflow.hosts.peace_checkpoints",
        "peacefs.dataflow.hosts.unit_states",
        "peacefs.dataflow.techniques.*",
        "pyarrow.acero",
        "peacefs.state.warm:warm",
    ),
}
#: The programs that a fork may run besides `peacefs`, with their role.
MODULES = {"peacefs.dataflow.hosts.node_process": "node"}
REQUEST_BYTES_MAX = 1 << 17
DESCRIPTORS_MAX = 64
READY = b"ready"

_CLONE_CALLS = {"x86_64": 56, "aarch64": 220}
_CLONE_PARENT = 0x00008000
_CLONE_CHILD_CLEARTID = 0x00200000
_CLONE_CHILD_SETTID = 0x01000000
_PR_SET_PDEATHSIG = 1
_PR_GET_TID_ADDRESS = 40


class Program(NamedTuple):
    """The program of a new process: a module or, without one, the script that the arguments begin with."""

    module: str | None
    arguments: list[str]
    #: True with -P: neither the working directory nor the script's is imported from.
    is_safe_path: bool


class _Clone:
    """Forks that have the caller's parent. Raises OSError where that is not to be had."""

    def __init__(self) -> None:
        # With the interpreter lock held throughout, as `os.fork` does it.
        self._libc = ctypes.PyDLL(None, use_errno=True)
        if platform.machine() not in _CLONE_CALLS:
            raise OSError(f"the number of clone is not known on {platform.machine()}")
        self._call = _CLONE_CALLS[platform.machine()]
        # glibc keeps a thread's id here, and lets the kernel write that of a child, as its own fork does.
        self._thread_id = ctypes.c_void_p()
        if self._libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(self._thread_id)):
            raise OSError(ctypes.get_errno(), "the kernel does not tell where glibc keeps a thread's id")

    def fork(self) -> int:
        flags = _CLONE_PARENT | _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
        # The child's id is the fourth word on x86-64 and the fifth on ARM; what keeps thread-local data is unused.
        words = [ctypes.c_void_p(each) for each in (flags, 0, 0, self._thread_id.value, self._thread_id.value)]
        python = ctypes.pythonapi
        python.PyOS_BeforeFork()
        pid = int(self._libc.syscall(ctypes.c_long(self._call), *words))
        if pid == 0:
            python.PyOS_AfterFork_Child()
        else:
            python.PyOS_AfterFork_Parent()
        if pid < 0:
            raise OSError(ctypes.get_errno(), "cannot fork")
        return pid

    def die_with_the_parent(self, parent: int) -> None:
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def import_all(names: tuple[str, ...]) -> None:
    for name in names:
        module, _, function = name.removesuffix(".*").partition(":")
        package = importlib.import_module(module)
        if function:
            getattr(package, function)()
        if name.endswith(".*"):
            for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
                importlib.import_module(each.name)


def serve(asked: socket.socket, clone: _Clone) -> Program:
    """Fork at each request. Return in each new process, with its program; exit when the socket ends."""
    while True:
        data, descriptors, _flags, _address = socket.recv_fds(asked, REQUEST_BYTES_MAX, DESCRIPTORS_MAX)
        if not data:
            sys.exit()
        request = json.loads(data)
        parent = os.getppid()
        try:
            pid = clone.fork()
        except OSError as fault:
            pid = -(fault.errno or 1)
        if pid == 0:
            clone.die_with_the_parent(parent)
            return _become(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        asked.send(json.dumps(pid).encode())


def _become(request: dict[str, Any], descriptors: list[int]) -> Program:
    """Be as a new process is when its interpreter has begun."""
    if request["is_session"]:
        os.setsid()
    elif request["process_group"] >= 0:
        os.setpgid(0, request["process_group"])
    _take_descriptors(request["descriptors"], descriptors)
    os.chdir(request["directory"])
    os.umask(request["umask"])
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(request["files_max"]))
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _open_standard_streams()
    return Program(*request["program"])


def _take_descriptors(numbers: list[int], received: list[int]) -> None:
    """Give each received descriptor its number; close all others."""
    above = max(*numbers, *received) + 1
    for taken in received:
        os.dup2(taken, above + taken)
    for number, taken in zip(numbers, received, strict=True):
        os.dup2(above + taken, number)
    kept = set(numbers)
    for each in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if each not in kept:
            try:
                os.close(each)
            except OSError:
                continue  # the one that the directory was read by


def _open_standard_streams() -> None:
    """As the interpreter does, whose own were opened before."""
    sys.stdin = sys.__stdin__ = _stream(0, "r", sys.stdin)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w", sys.stdout)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", sys.stderr)  # type: ignore[misc]


def _stream(descriptor: int, mode: str, like: Any) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, mode, closefd=False)
    raw.name = f"<std{('in', 'out', 'err')[descriptor]}>"
    buffer: Any = raw
    if mode == "r":
        buffer = io.BufferedReader(raw)
    elif not like.write_through:
        buffer = io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffer,
        encoding=like.encoding,
        errors=like.errors,
        newline=None if mode == "r" else "\n",
        line_buffering=descriptor == 2 or raw.isatty(),
        write_through=like.write_through,
    )


def run(program: Program) -> None:
    """As the interpreter runs it."""
    sys.argv = list(program.arguments)
    if program.module is not None:
        if not program.is_safe_path:
            sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(program.module, run_name="__main__", alter_sys=True)
    else:
        script = program.arguments[0]
        if not program.is_safe_path:
            sys.path.insert(0, str(Path(script).resolve().parent))
        runpy.run_path(script, run_name="__main__")


def main(role: str, descriptor: int) -> None:
    """Prepare, serve, and run what a new process is to run."""
    # Whoever presses Ctrl-C means those who are asked for, and who asks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = socket.socket(fileno=descriptor)
    try:
        clone = _Clone()
    except OSError as fault:
        asked.send(str(fault).encode())
        sys.exit()
    import_all(PREPARED[role])
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "an import has started a thread: forks would lack it"
    gc.collect()
    gc.freeze()
    asked.send(READY)
    run(serve(asked, clone))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
