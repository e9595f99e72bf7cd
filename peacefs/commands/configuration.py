"""Set options of commands in a file or in the environment, by their names on the command line.

    # /etc/peacefs/config.toml, then $XDG_CONFIG_HOME/peacefs/config.toml; or only the file PEACEFS_CONFIG
    [client]                        # commands that talk to a coordinator
    coordinator = "http://namenode:9870"

    [datanode]                      # peacefs datanode --dir /data --rack /row1/rack2
    dir = "/data"
    rack = "/row1/rack2"

A table is a command (`[checkpoint.verify]` for one of a group), a key an option without its dashes; `-` may be
written as `_`. The variable of the same option is PEACEFS_DATANODE_RACK. Precedence: command line, environment,
files, defaults. All mistakes in files and variables are reported together before anything starts.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from peacefs.client.command_line.options import COORDINATOR_VARIABLES
from peacefs.protocol.limits import MIB

configuration_bytes_max: Final = 1 * MIB


FILE_VARIABLE: Final = "PEACEFS_CONFIG"
_PREFIX = "PEACEFS"
_CLIENT = "client"
#: Options that control a single call or belong to the starting process, so they cannot be configured.
_NOT_CONFIGURED = frozenset({"help", "json", "ready-fd", "parent-fd", "version", "show-completion"})
#: The option of all commands that talk to a coordinator: `[client] coordinator`, and its variables.
_COORDINATOR = "coordinator"
_NO_COMMAND = TyperCommand("peacefs")


class ValueOrigin(Enum):
    """Where an option's value comes from."""

    FILE = "file"
    ENVIRONMENT = "environment"
    DEFAULT = "default"


@dataclass(frozen=True)
class OptionValue:
    """An option's value before the command line is parsed. `source` is the file or variable."""

    command: str
    option: str
    value: Any
    origin: ValueOrigin
    source: str


@dataclass
class Configuration:
    """Options from files and the environment. If there are `mistakes` (lines), ignore the rest."""

    #: Click's `default_map`: values by parameter, nested by command and group.
    defaults: dict[str, Any] = field(default_factory=dict)
    #: Options by command; a command of a group is named with a space.
    settings: dict[str, list[OptionValue]] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)


def files(environment: Mapping[str, str]) -> list[Path]:
    """Return the files to read, most general first. An empty PEACEFS_CONFIG means none."""
    named = environment.get(FILE_VARIABLE)
    if named is not None:
        return [Path(named)] if named else []
    home = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME", "/")) / ".config")
    found = [Path("/etc/peacefs/config.toml"), Path(home) / "peacefs" / "config.toml"]
    return [file for file in found if file.is_file()]


def apply(command: Any, environment: Mapping[str, str] = os.environ) -> Configuration:
    """Read the configuration of a command and its subcommands, and give their options their variables."""
    configuration = Configuration()
    tables = [_read(file, configuration.mistakes) for file in files(environment)]
    commands = dict(_walk(command, ()))
    for file, table in tables:
        _check_tables(command, table, (), file, configuration.mistakes)
    for path, each in commands.items():
        values = {}
        for option in _options(each):
            setting = _setting(path, option, tables, environment, configuration.mistakes)
            configuration.settings.setdefault(" ".join(path), []).append(setting)
            if setting.origin is ValueOrigin.FILE:
                values[option.name] = setting.value
        if values:
            _put(configuration.defaults, path, values)
    return configuration


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    if isinstance(command, TyperGroup):
        for name, each in command.commands.items():
            yield from _walk(each, (*path, name))


def _options(command: Any) -> Iterator[TyperOption]:
    for option in command.params:
        # `peacefs --coordinator X ls` sets the option of `ls`, so only that one can be configured.
        is_of_program = isinstance(command, TyperGroup) and _flag(option) == _COORDINATOR
        if isinstance(option, TyperOption) and _flag(option) not in _NOT_CONFIGURED and not is_of_program:
            yield option


def _flag(option: TyperOption) -> str:
    """Return the long name of an option without its dashes."""
    return max(option.opts, key=len).lstrip("-")


def _setting(
    path: tuple[str, ...],
    option: TyperOption,
    tables: Sequence[tuple[Path, dict[str, Any]]],
    environment: Mapping[str, str],
    mistakes: list[str],
) -> OptionValue:
    command, flag = " ".join(path), _flag(option)
    variables = _variables(path, option)
    # Help shows declared variables only; the others follow from the option's name.
    option.show_envvar = bool(option.envvar)
    option.envvar = variables
    for variable in variables:
        text = environment.get(variable)
        if text:
            if complaint := _complaint(option, text, is_text=True):
                mistakes.append(f"{variable}: {complaint}")
            whose = _CLIENT if variable in COORDINATOR_VARIABLES else command
            return OptionValue(whose, flag, text, ValueOrigin.ENVIRONMENT, variable)
    for file, table in reversed(tables):
        for where in _places(path, option):
            found = _look_up(table, where, flag)
            if found is not None:
                if complaint := _complaint(option, found):
                    mistakes.append(f"{file}: [{'.'.join(where)}] {flag}: {complaint}")
                return OptionValue(" ".join(where), flag, found, ValueOrigin.FILE, str(file))
    return OptionValue(command, flag, option.default, ValueOrigin.DEFAULT, "")


def _variables(path: tuple[str, ...], option: TyperOption) -> list[str]:
    """Return an option's variables: the declared ones, and the one named after its command."""
    declared = option.envvar
    named = [declared] if isinstance(declared, str) else list(declared or ())
    if _is_client(option):
        named = [*COORDINATOR_VARIABLES]
    own = "_".join((_PREFIX, *path, _flag(option))).upper().replace("-", "_")
    # The --coordinator of a datanode or agent differs from that of clients.
    return list(dict.fromkeys([*named, own]))


def _is_client(option: TyperOption) -> bool:
    declared = option.envvar
    named = [declared] if isinstance(declared, str) else list(declared or ())
    return _flag(option) == _COORDINATOR and bool({*named} & {*COORDINATOR_VARIABLES})


def _places(path: tuple[str, ...], option: TyperOption) -> list[tuple[str, ...]]:
    client = option.envvar is not None and COORDINATOR_VARIABLES[0] in option.envvar
    return [path, (_CLIENT,)] if client else [path]


def _look_up(table: Mapping[str, Any], where: Sequence[str], flag: str) -> Any:
    for name in where:
        inner = table.get(name)
        if not isinstance(inner, dict):
            return None
        table = inner
    for key in (flag, flag.replace("-", "_")):
        if key in table and not isinstance(table[key], dict):
            return table[key]
    return None


def _complaint(option: TyperOption, value: Any, *, is_text: bool = False) -> str:
    """Return what is wrong with a value of a file or the text of a variable; empty if nothing."""
    is_list = option.multiple or option.nargs != 1
    if is_text and is_list:
        value = option.split_envvar_value(value)
    elif is_list != isinstance(value, list):
        return f"{value!r} is {'one value where a list' if is_list else 'a list where one value'} is wanted"
    elif not is_text and option.is_flag != isinstance(value, bool):
        return f"{value!r} is {'neither true nor false' if option.is_flag else 'no value of this option'}"
    try:
        option.process_value(typer.Context(_NO_COMMAND), value)
    except typer.BadParameter as fault:
        return str(fault.message).rstrip(".")
    return ""


def _read(file: Path, mistakes: list[str]) -> tuple[Path, dict[str, Any]]:
    try:
        if file.stat().st_size > configuration_bytes_max:
            mistakes.append(f"{file} has more than {configuration_bytes_max} bytes")
            return file, {}
        return file, tomllib.loads(file.read_text())
    except OSError as fault:
        mistakes.append(f"{file} cannot be read: {fault.strerror}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        mistakes.append(f"{file} is no TOML: {fault}")
    return file, {}


def _check_tables(
    command: Any, table: Mapping[str, Any], path: tuple[str, ...], file: Path, mistakes: list[str]
) -> None:
    """Report tables that match no command, and keys that match no option."""
    flags = {name for option in _options(command) for name in (_flag(option), _flag(option).replace("-", "_"))}
    inner = command.commands if isinstance(command, TyperGroup) else {}
    for key, value in table.items():
        shown = ".".join((*path, key))
        if isinstance(value, dict) and key in inner:
            _check_tables(inner[key], value, (*path, key), file, mistakes)
        elif isinstance(value, dict) and not path and key == _CLIENT:
            for name in value.keys() - {_COORDINATOR}:
                mistakes.append(f"{file}: [{_CLIENT}] has no option {name}: it has {_COORDINATOR}")
        elif isinstance(value, dict) and not path and not _is_whole(command):
            continue  # a table of a command that this call has not declared
        elif isinstance(value, dict):
            mistakes.append(f"{file}: [{shown}] is no command of peacefs")
        elif key not in flags:
            where = f"peacefs {' '.join(path)}".strip()
            mistakes.append(f"{file}: {shown} is no option of `{where}`{_nearest(key, flags)}")


def _is_whole(command: Any) -> bool:
    """Return whether all commands were declared, rather than only the one that was called."""
    return isinstance(command, TyperGroup) and len(command.commands) > 1


def _nearest(key: str, flags: set[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(key.replace("_", "-"), flags, n=1)
    return f"; do you mean {found[0]}?" if found else ""


def _put(defaults: dict[str, Any], path: Sequence[str], values: Mapping[str, Any]) -> None:
    for name in path:
        defaults = defaults.setdefault(name, {})
    defaults.update(values)
