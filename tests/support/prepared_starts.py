"""Start `peacefs` in tests by forking an interpreter that has already imported it.

`prepare` replaces `subprocess.Popen` in this process. `python -m peacefs ...` and the installed command are then
forked by a fork server; everything else is started normally. A process that needs what a fork cannot have (another
user, other options or variables of the interpreter) is started normally, too, and so is everything within
`started_anew`.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import resource
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from support import fork_server

_SERVER = Path(fork_server.__file__)
_INSTALLED = f"{sysconfig.get_path('scripts')}/peacefs"
#: Variables that nothing reads before the program begins. Others affect the interpreter or imported modules.
_READ_LATE = (
    *("PEACEFS_", "PYTEST_", "SPARK_", "PYSPARK_", "HADOOP_", "JAVA_", "XDG_"),
    *("HOME", "PATH", "PWD", "TMPDIR", "http_proxy"),
    # Polars sets this variable when a test imports it as a judge.
    "_RJEM_MALLOC_CONF",
)
_FILE_NAMES = (str, os.PathLike)
#: A fork lacks the threads that NumPy and Arrow start at import.
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}

_Popen = subprocess.Popen


def program_of(command: Any) -> fork_server.Program | None:
    """Return the program of a command that runs `peacefs` or a node by this interpreter; None for any other."""
    if isinstance(command, (str, bytes)) or not all(isinstance(word, _FILE_NAMES) for word in command):
        return None
    words = [os.fspath(word) for word in command]
    if words[:1] == [_INSTALLED]:
        return fork_server.Program(None, words, False)
    if words[:1] != [sys.executable]:
        return None
    if _script_of(words[1:]) in fork_server.SCRIPTS:
        return fork_server.Program(None, words[1:], False)
    options = words[1:2] == ["-P"]
    option, module = [*words[1 + options : 3 + options], None, None][:2]
    if option != "-m" or module not in ("peacefs", *fork_server.MODULES):
        return None
    return fork_server.Program(module, ["-m", *words[3 + options :]], options)


def _script_of(words: Sequence[str]) -> str:
    return Path("".join(words[:1])).name


def role_of(program: fork_server.Program) -> str:
    """Return the role of the fork server that has imported a program's modules."""
    if program.module in fork_server.MODULES:
        return fork_server.MODULES[program.module]
    if program.module is None and (script := _script_of(program.arguments)) in fork_server.SCRIPTS:
        return fork_server.SCRIPTS[script]
    chosen = program.arguments[1] if len(program.arguments) > 1 else ""
    return chosen if chosen in fork_server.PREPARED else "command"


class Surroundings(NamedTuple):
    """The environment and working directory of this process before tests changed them."""

    environment: dict[str, str]
    directory: Path


class Forks:
    """Starts processes through a fork server at the other end of a socket, as children of this process."""

    is_of_use = True

    def __init__(self, asked: socket.socket, environment: dict[str, str]) -> None:
        self._lock = threading.Lock()
        self._environment = environment
        self._socket = asked

    def can_have(self, environment: dict[str, str], module: str | None) -> bool:
        """Return whether a fork with these variables behaves like a new process."""
        here = self._environment
        different = {name for name in here.keys() | environment.keys() if here.get(name) != environment.get(name)}
        if module in fork_server.OF_TESTS:
            different.discard("PYTHONPATH")  # besides, the fork has its own working directory
        return all(name.startswith(_READ_LATE) for name in different)

    def start(self, request: dict[str, Any], descriptors: Sequence[int]) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            pid = int(self._socket.recv(16))
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return pid

    def stop(self) -> None:
        self._socket.close()


class ForkServer(Forks):
    """A fork server of this process, which ends with it."""

    def __init__(self, role: str, surroundings: Surroundings) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours, surroundings.environment)
        with theirs:
            self.process = _Popen(
                [sys.executable, "-P", str(_SERVER), role, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=surroundings.environment | _NO_THREADS,
                cwd=surroundings.directory,
                pass_fds=[theirs.fileno()],
            )
        told = self._socket.recv(4096)
        assert told, "the fork server did not begin; its error is above"
        #: True if the system lets a fork have another parent.
        self.is_of_use = told == fork_server.READY
        if not self.is_of_use:
            print(f"every process of the tests begins anew, which takes longer: {told.decode()}", file=sys.stderr)

    def stop(self) -> None:
        super().stop()
        self.process.wait()


class OwnForks(Forks):
    """Forks of this process in its present state, before it starts a thread."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours, dict(os.environ))
        with theirs:
            self._pid = fork_server.fork_here(ours, theirs)

    def stop(self) -> None:
        super().stop()
        os.waitpid(self._pid, 0)


_servers: dict[str, Forks] = {}
_surroundings: Surroundings | None = None
#: Number of active `started_anew` blocks.
_off_count = 0


class PreparedPopen(_Popen):  # type: ignore[type-arg]
    """A process, started by a fork if that makes no difference."""

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(_Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        if not self._is_forked(asked):
            super()._execute_child(*given)  # type: ignore[misc]

    def _is_forked(self, asked: dict[str, Any]) -> bool:
        """Start the process by a fork if possible. Return whether it was started."""
        program = program_of(asked["args"])
        server = None if program is None or _off_count else _server(role_of(program))
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        directory = os.fspath(asked["cwd"] or Path.cwd())
        if (
            program is None
            or server is None
            or not server.is_of_use
            or not server.can_have(environment, program.module)
            or not Path(directory).is_dir()
            or not asked["close_fds"]
            or not asked["restore_signals"]
            or asked["shell"]
            or asked["executable"] is not None
            or any(asked[name] is not None for name in ("preexec_fn", "uid", "gid", "gids"))
        ):
            return False
        standard = [ours if ours >= 0 else number for number, ours in enumerate(_standard(asked))]
        inherited = [each for each in asked["pass_fds"] if each > 2]
        self.pid = server.start(
            {
                "program": program,
                "environment": environment,
                "directory": directory,
                "descriptors": [0, 1, 2, *inherited],
                "is_session": asked["start_new_session"],
                "process_group": asked["process_group"],
                "umask": asked["umask"] if asked["umask"] >= 0 else _umask(),
                "files_max": resource.getrlimit(resource.RLIMIT_NOFILE),
            },
            [*standard, *inherited],
        )
        self._child_created = True
        self._close_pipe_fds(  # type: ignore[attr-defined]
            *(asked[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"))
        )
        return True


def _standard(asked: dict[str, Any]) -> tuple[int, int, int]:
    return asked["p2cread"], asked["c2pwrite"], asked["errwrite"]


def _umask() -> int:
    """Return this process's umask, without changing it even briefly."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Umask:")]
    return int(line.split()[1], 8)


def _server(role: str) -> Forks | None:
    # A process that dies with its parent dies when the thread that started it ends.
    if role not in _servers and _surroundings and threading.current_thread() is threading.main_thread():
        _servers[role] = ForkServer(role, _surroundings)
    return _servers.get(role)


def fork_by(asked: socket.socket, roles: Sequence[str]) -> None:
    """Start these roles through the server at the other end of a socket. For a process that is a fork itself."""
    _servers.update(dict.fromkeys(roles, Forks(asked, dict(os.environ))))
    subprocess.Popen = PreparedPopen  # type: ignore[misc]


def begin(role: str) -> None:
    """Start a fork server for later use by other threads, which cannot start it. Call from the main thread."""
    _server(role)


@contextlib.contextmanager
def prepare() -> Iterator[None]:
    """Use fork servers from now on. A server starts when it is first needed."""
    global _surroundings
    _surroundings = Surroundings(dict(os.environ), Path.cwd())
    subprocess.Popen = PreparedPopen  # type: ignore[misc]
    try:
        yield
    finally:
        subprocess.Popen = _Popen  # type: ignore[misc]
        while _servers:
            _servers.popitem()[1].stop()


@contextlib.contextmanager
def forks_of_this_process() -> Iterator[None]:
    """Fork nodes from this process from now on. For test programs that have imported what nodes import."""
    _servers["node"] = OwnForks()
    with prepare():
        yield


@contextlib.contextmanager
def started_anew() -> Iterator[None]:
    """Start every process without a fork within the block, as a user does. Blocks may overlap in any way."""
    global _off_count
    _off_count += 1
    try:
        yield
    finally:
        _off_count -= 1
