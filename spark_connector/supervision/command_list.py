"""The commands that an agent may start: a list in TOML, written by the agent's operator.

    runs_max = 4                                        # concurrent queries

    [commands.failed-logins]
    program = "/opt/spark/bin/spark-submit"             # an absolute path
    arguments = ["--master", "local[2]", "/srv/failed_logins.py", "{checkpoint}"]
    extra_arguments = false                             # may the user who registers a query add arguments?
    users = ["alice"]                                   # who may use it, besides superusers
    directory = "/srv"                                  # working directory; default: the account's own
    stop_s = 3.0                                        # from a stop to SIGKILL
    environment = { JAVA_HOME = "/opt/java" }

    [accounts]                                          # only for an agent that runs as root
    alice = "alice-jobs"                                # account for alice's runs; default: the same name

In arguments, `{checkpoint}`, `{coordinator}`, `{query}` and `{run}` are replaced by the values of the variables
PEACEFS_CHECKPOINT, PEACEFS_COORDINATOR, PEACEFS_QUERY and PEACEFS_RUN; `placeholders` says what is refused.
PEACEFS_CHECKPOINT_ROOT is the checkpoint's path without the run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from peacefs.client.control.addresses import parse_address
from peacefs.protocol.errors import QueryFailed, StartupError
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import AgentCommand, RunOrder
from peacefs.protocol.values.query_runs import GivenRun, without_run
from peacefs.runtime.tls_variables import CA_FILE_VARIABLE

from .placeholders import check_extra, check_words, fill
from .run_account import Account, inherited

# How long a run that should stop has before it is killed. The guard kills it after 10 s without its agent.
run_stop_s_default: Final = 3.0
run_stop_s_max: Final = 8.0
agent_runs_max_default: Final = 4
agent_runs_max: Final = 256
agent_list_bytes_max: Final = 1 * MIB


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    program: str
    arguments: list[str] = []
    extra_arguments: bool = False
    users: list[str] = []
    directory: str = ""
    environment: dict[str, str] = {}
    stop_s: float = run_stop_s_default


class CommandList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    commands: dict[str, Command]
    runs_max: int = agent_runs_max_default
    accounts: dict[str, str] = {}

    def told(self) -> list[AgentCommand]:
        """Return the list as the agent reports it to the coordinator."""
        return [
            AgentCommand(name, command.users, command.extra_arguments) for name, command in self.commands.items()
        ]


class Start(msgspec.Struct, frozen=True):
    """A command to start, with all values filled in."""

    arguments: list[str]
    directory: str
    environment: dict[str, str]
    account: Account
    #: The time from SIGTERM to SIGKILL.
    stop_s: float = run_stop_s_default


def given_run(order: RunOrder, coordinator: str, *, tls: bool) -> GivenRun:
    """Return the run of an order in the form that its program receives."""
    if not order.location:
        return GivenRun(order.run, "", "")
    # Spark's URIs name the cluster; our clients name each of its coordinators.
    webhdfs = parse_address(f"{'https' if tls else 'http'}://{coordinator}").webhdfs
    return GivenRun(order.run, webhdfs + without_run(order.location), webhdfs + order.location)


def read_command_list(path: Path) -> CommandList:
    """Read the list. Raises StartupError if the file is missing or wrong."""
    try:
        if path.stat().st_size > agent_list_bytes_max:
            raise StartupError(f"{path} has more than {agent_list_bytes_max} bytes")
        found = msgspec.convert(tomllib.loads(path.read_text()), CommandList)
    except OSError as error:
        raise StartupError(f"cannot read the list of commands {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise StartupError(f"{path} is no list of commands: {error}") from None
    _check(path, found)
    return found


def _check(path: Path, found: CommandList) -> None:
    if not 1 <= found.runs_max <= agent_runs_max:
        raise StartupError(f"{path}: runs_max is {found.runs_max}; it can be 1 to {agent_runs_max}")
    if not found.commands:
        raise StartupError(f"{path} lists no command: an agent with it could start nothing")
    for name, command in found.commands.items():
        if not Path(command.program).is_absolute():
            raise StartupError(
                f"{path}: the program of {name} is {command.program!r}; it must be an absolute path"
            )
        if not 0 < command.stop_s <= run_stop_s_max:
            raise StartupError(
                f"{path}: stop_s of {name} is {command.stop_s:g}; it must be over 0 and up to {run_stop_s_max:g}"
            )
        check_words(name, [command.program, *command.arguments])
        if command.extra_arguments:
            check_extra(name, command.arguments)


def start_of(
    order: RunOrder,
    listed: CommandList,
    coordinator: str,
    environment: Mapping[str, str],
    account: Account,
    home: Path,
    credentials: Mapping[str, str] = MappingProxyType({}),
    ca_file: Path | None = None,
) -> Start:
    """Return how to carry out an order. Raises QueryFailed if the list does not allow it.

    `environment` is the agent's own; little of it is passed on. `home` belongs to the account. In the cluster it
    acts as the user who registered the query, by name and `credentials`. With `ca_file` it uses TLS.
    """
    command = listed.commands.get(order.command)
    if command is None or (order.arguments and not command.extra_arguments):
        raise QueryFailed(f"this agent's list does not allow {order.command} so")
    given = given_run(order, coordinator, tls=ca_file is not None)
    facts = {
        "checkpoint": given.location,
        "coordinator": f"{'http' if ca_file is None else 'https'}://{coordinator}",
        "query": order.query,
        "run": order.run,
    }
    of_account = {"HOME": str(home), "TMPDIR": str(home), "USER": account.name, "LOGNAME": account.name}
    variables = {f"PEACEFS_{name.upper()}": value for name, value in facts.items()}
    variables["PEACEFS_CHECKPOINT_ROOT"] = given.root
    trusted = {} if ca_file is None else {CA_FILE_VARIABLE: str(ca_file.absolute())}
    return Start(
        [command.program, *fill((*command.arguments, *order.arguments), facts)],
        command.directory or str(home),
        {
            **inherited(environment),
            **of_account,
            **trusted,
            **command.environment,
            **variables,
            **credentials,
            "HADOOP_USER_NAME": order.user,
        },
        account,
        command.stop_s,
    )
