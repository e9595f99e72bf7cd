"""An interpreter that has imported what `peacefs` imports, and forks instead of starting a new interpreter.

    python -P fork_server.py ROLE DESCRIPTOR

The imports of a new interpreter take half a second of processor time, and tests start hundreds of services and
commands. `prepared_starts` sends requests over the socket of that descriptor: JSON, with the descriptors of the
new process. The answer is the pid. The fork runs the real entry point, `python -m peacefs` or the installed
command, with its own working directory, environment, arguments and descriptors.

The new process is a child of the requesting process, not of this one (CLONE_PARENT), so the requester can wait for
it as for any other child. The server ends when the socket is closed.
"""

from __future__ import annotations

import atexit
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
import threading
import traceback
from pathlib import Path
from typing import Any, NamedTuple

_EVERYWHERE = (
    "peacefs.start",
    "peacefs.command",
    "encodings.idna",
    # Modules that typer imports lazily, with the first option.
    "pydantic.plugin._loader",
    "typer._adapters",
    "typer._click.decorators",
)
#: The modules of each role; `.*` means all modules of a package, and a function after a colon is called. A
#: coordinator that had imported a datanode would export the metrics of both. Modules that few processes import,
#: and late (Spark, Arrow, NumPy), are left out; all nodes of dataflows need Arrow and the kernels of paged state.
PREPARED = {
    "coordinator": (
        *_EVERYWHERE,
        "peacefs.coordinator.process",
        "peacefs.coordinator.metadata.sqlite.*",
        # Modules that uvicorn and FastAPI import when they are first used.
        "anyio._backends._asyncio",
        "fastapi_offline",
        "pydantic.dataclasses",
        "pydantic.v1",
        "uvicorn.protocols.http.httptools_impl",
    ),
    "datanode": (*_EVERYWHERE, "peacefs.datanode.process", "uvicorn.protocols.http.httptools_impl"),
    "command": (
        *_EVERYWHERE,
        "peacefs.client.filesystem",
        "peacefs.client.command_line.*",
        "peacefs.client.local_cluster.*",
        "httpcore",
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
# Modules that the examples of decisions and guides import.
PREPARED["tracer"] = (
    *PREPARED["node"],
    "peacefs.client.async_filesystem",
    "peacefs.client.io_service",
    "peacefs.client.local_cluster.member_supervision",
    "peacefs.client.transfer.*",
    "peacefs.coordinator.api.rest.web_page",
    "peacefs.coordinator.core",
    "peacefs.coordinator.journal.*",
    "peacefs.coordinator.metadata.sqlite.*",
    "peacefs.coordinator.operations.under_construction",
    "peacefs.coordinator.rpc.dispatch",
    "peacefs.coordinator.supervision.locality",
    "peacefs.dataflow.logs.*",
    "peacefs.dataflow.ring.*",
    "peacefs.datanode.control.prover",
    "peacefs.datanode.gateway.flush_times",
    "peacefs.service.browser_guard",
    "peacefs.client.local_cluster.trial_certificates",
    "peacefs.spark_connector.checkpoints.formats.*",
)
#: The members of a cluster that `peacefs up` starts are forked by a process that is forked with it.
PREPARED["up"] = (*PREPARED["command"], *PREPARED["coordinator"], *PREPARED["datanode"])
# Modules of the Python processes that a JVM of Spark starts, among them nodes of dataflows.
PREPARED["spark worker"] = (
    *PREPARED["node"],
    "pandas",
    "peacefs.dataflow.hosts.node_process",
    "peacefs.dataflow.hosts.ring_node",
    "peacefs.spark_connector.stream_logs",
    "pyspark.daemon",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyspark.worker",
)
#: The programs that a fork may run besides `peacefs`, with their role: modules, and scripts by their name.
MODULES = {"peacefs.dataflow.hosts.node_process": "node", "peacefs.dataflow.hosts.ring_node": "node"}
SCRIPTS = {"guide.py": "tracer", "tracer.py": "tracer"}
#: Test programs that run nodes, whose nodes are forked from them (`prepared_starts.forks_of_this_process`).
OF_TESTS = ("support.log_dataflow", "support.resumed_query")
MODULES |= dict.fromkeys(OF_TESTS, "node")
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
    #: True with -P: neither the working directory nor the script's directory is on the import path.
    is_safe_path: bool


class _Clone:
    """Clone a process that gets the caller's parent. Raises OSError if the system does not allow that."""

    def __init__(self) -> None:
        # Hold the interpreter lock throughout, as `os.fork` does.
        self._libc = ctypes.PyDLL(None, use_errno=True)
        if platform.machine() not in _CLONE_CALLS:
            raise OSError(f"the number of clone is not known on {platform.machine()}")
        self._call = _CLONE_CALLS[platform.machine()]
        # glibc keeps a thread's id here and lets the kernel write the child's, as its own fork does.
        self._thread_id = ctypes.c_void_p()
        if self._libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(self._thread_id)):
            raise OSError(ctypes.get_errno(), "the kernel does not tell where glibc keeps a thread's id")

    def fork(self) -> int:
        flags = _CLONE_PARENT | _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
        # The child's id is the fourth argument on x86-64 and the fifth on ARM; the argument for thread-local data
        # is 0.
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
    """Fork at each request. Return in each new process, with its program. Exit when the socket closes."""
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


def prepare_members(clone: _Clone) -> None:
    """Make this process's children fork from its present state, as `peacefs up` does, before it has begun."""
    from support import prepared_starts

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    if os.fork() == 0:
        clone.die_with_the_parent(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        nowhere = os.open(os.devnull, os.O_RDWR)
        _take_descriptors([0, 1, 2, 3], [nowhere, nowhere, nowhere, theirs.detach()])
        ours.detach()
        end(run_to_its_end(serve(socket.socket(fileno=3), clone)))
    theirs.close()
    prepared_starts.fork_by(ours, ("coordinator", "datanode"))


def _become(request: dict[str, Any], descriptors: list[int]) -> Program:
    """Restore the state of a newly started interpreter."""
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
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in named if path and path not in sys.path]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _open_standard_streams()
    return Program(*request["program"])


def _take_descriptors(numbers: list[int], received: list[int]) -> None:
    """Give each received descriptor its number, and close all others."""
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
                continue  # the descriptor of the directory listing itself


def _open_standard_streams() -> None:
    """Open the standard streams again, as the interpreter does at its start."""
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
    """Run the program as the interpreter would."""
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


def run_to_its_end(program: Program) -> int:
    """Return the exit status of a program that ends normally. Other exceptions go to the interpreter."""
    try:
        run(program)
    except SystemExit as asked:
        if asked.code is not None and not isinstance(asked.code, int):
            raise
        return asked.code or 0
    return 0


def end(status: int) -> None:
    """End as the interpreter does, but without freeing objects one by one.

    Freeing would copy nearly all pages shared with other forks, which takes longer than most programs run.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    # Let objects in reference cycles run their finalizers.
    gc.collect()
    try:
        for stream in (sys.stdout, sys.stderr):
            if not stream.closed:
                stream.flush()
    except OSError:
        # The interpreter prints the error and exits with its status.
        sys.exit(status)
    os._exit(status & 0xFF)


def fork_here(ours: socket.socket, theirs: socket.socket) -> int:
    """Fork a server with this process's imports, and return its pid. No other thread may run yet."""
    clone = _Clone()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        ours.close()
        end(run_to_its_end(serve(theirs, clone)))
    except SystemExit:
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Exit here: the fork inherited the frames of its parent, which must not run on.
        os._exit(status)


def main(role: str, descriptor: int) -> None:
    """Prepare and serve; in a new process, run its program."""
    # Ctrl-C is meant for the requested processes and for the requester.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = socket.socket(fileno=descriptor)
    try:
        clone = _Clone()
    except OSError as fault:
        asked.send(str(fault).encode())
        sys.exit()
    import_all(PREPARED[role])
    if role == "up":
        sys.path.append(str(Path(__file__).parents[1]))
        importlib.import_module("support.prepared_starts")
        sys.path.pop()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "an import has started a thread: forks would lack it"
    gc.collect()
    gc.freeze()
    asked.send(READY)
    program = serve(asked, clone)
    if role == "up":
        prepare_members(clone)
    end(run_to_its_end(program))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
