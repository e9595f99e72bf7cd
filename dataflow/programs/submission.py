"""Hand a program with a dataflow to the coordinator, which has agents run it: for `peacefs dataflow run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from peacefs.client.control.supervised_queries import SupervisedQueries, WantedQuery
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import AccessDenied, BadRequest, FileAlreadyExists, FileNotFound
from peacefs.protocol.limits import supervised_restarts_default
from peacefs.protocol.values.supervised_queries import DATAFLOW, OVER, QueryStatus
from peacefs.protocol.values.trash import home_of

from .start_app import PROGRAMS, dataflow_program_bytes_max, name_of_program

_OVER: Final = frozenset(phase.value for phase in OVER)


def submit(
    program: Path,
    arguments: Sequence[str] = (),
    *,
    coordinator: str,
    name: str | None = None,
    directory: str | None = None,
    on: Sequence[str] = (),
    restarts_max: int = supervised_restarts_default,
    user: str | None = None,
) -> QueryStatus:
    """Store a program in the query's directory, and register it to be kept running.

    `directory`: where checkpoints and programs are, by default `/user/<user>/dataflows/<name>`. A query that is
    over continues from its checkpoints there. Raises BadRequest for a program that is no Python or if no agent may
    start it, FileAlreadyExists if the name is in use, AccessDenied, PeerError.
    """
    contents = _read(program)
    name = name or program.stem
    if "/" in name:
        raise BadRequest(f"a query's name has no slash: {name!r}")
    with SupervisedQueries(coordinator, user) as queries, PeaceFileSystem(coordinator, user=user) as files:
        _check_agents(queries, files.user)
        _check_name(queries, name)
        place = (directory or f"{home_of(files.user)}/dataflows/{name}").rstrip("/")
        stored = name_of_program(contents)
        _make_directory(files, f"{place}/{PROGRAMS}")
        files.write(f"{place}/{PROGRAMS}/{stored}", contents, overwrite=True)
        command = [DATAFLOW, stored, *arguments]
        return queries.register(WantedQuery(name, command, place, on, restarts_max))


def _read(program: Path) -> bytes:
    try:
        if program.stat().st_size > dataflow_program_bytes_max:
            raise BadRequest(f"{program} has more than {dataflow_program_bytes_max} bytes")
        contents = program.read_bytes()
    except OSError as error:
        raise BadRequest(f"cannot read {program}: {error.strerror}") from None
    try:
        compile(contents, str(program), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        what = error.msg if isinstance(error, SyntaxError) else error
        raise BadRequest(f"{program}{line} is no Python: {what}") from None
    return contents


def _check_agents(queries: SupervisedQueries, user: str) -> None:
    agents = queries.all().agents
    if not agents:
        raise BadRequest(
            f"no agent that may start anything for {user} is alive: start one with `peacefs agent` on a machine "
            "(docs/supervision.md)"
        )
    if not any(DATAFLOW in agent.commands for agent in agents):
        raise BadRequest(
            f"no agent may start dataflows for {user}: add [commands.{DATAFLOW}] to an agent's list "
            "(docs/dataflow.md)"
        )


def _make_directory(files: PeaceFileSystem, path: str) -> None:
    try:
        files.mkdirs(path)
    except AccessDenied as refusal:
        home = home_of(files.user)
        if not path.startswith(f"{home}/") or files.exists(home):
            raise
        raise AccessDenied(
            f"{refusal.message}: let a superuser make {home} (`peacefs prepare {files.user}`), or give --directory"
        ) from None


def _check_name(queries: SupervisedQueries, name: str) -> None:
    try:
        known = queries.status(name)
    except FileNotFound:
        return
    except AccessDenied:
        raise FileAlreadyExists(f"another user has a query {name}: give another --name") from None
    if known.phase not in _OVER:
        raise FileAlreadyExists(
            f"a query {name} is {known.phase} already: stop it first (`peacefs dataflow stop {name}`), or give "
            "another --name"
        )
