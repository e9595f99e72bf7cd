"""`peacefs config`: the options of commands, and where each value comes from."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from . import configuration

config = typer.Typer(
    no_args_is_help=True,
    help="Show options from files and the environment.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@config.callback()
def about() -> None:
    """Show options from files and the environment (docs/configuration.md)."""


@config.command()
def show(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND]...",
            help="Show only the options of this command, such as `datanode`.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also show defaults.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON to stdout.")] = False,
) -> None:
    """Show the value of each option, and the file or variable that sets it.

    Without a command, shows only options that are not defaults. Lists mistakes, with exit status 2.
    """
    wanted = " ".join(command or ())
    found = configuration.apply(context.find_root().command)
    if wanted:
        settings = [each for path, of in found.settings.items() if path == wanted for each in of]
    else:
        settings = _once(each for of in found.settings.values() for each in of)
        settings = [
            each for each in settings if everything or each.origin is not configuration.ValueOrigin.DEFAULT
        ]
    if wanted and not settings:
        raise typer.BadParameter(f"peacefs {wanted} is no command with options", param_hint="COMMAND")
    if as_json:
        told = [
            {
                "command": each.command,
                "option": each.option,
                "value": each.value if isinstance(each.value, (str, int, float, bool, list)) else None,
                "origin": each.origin.value,
                "source": each.source,
            }
            for each in settings
        ]
        files = [str(file) for file in configuration.files(os.environ)]
        sys.stdout.write(json.dumps({"files": files, "settings": told}) + "\n")
        return
    for each in settings:
        where = each.source or each.origin.value
        name = f"{each.command} --{each.option}".strip()
        sys.stdout.write(f"{name} = {_shown(each.value)}\t({where})\n")
    if not settings:
        sys.stdout.write("every option has its default\n")


def _once(settings: Iterable[configuration.OptionValue]) -> list[configuration.OptionValue]:
    """Drop repetitions: values that several commands share from one source."""
    found: list[configuration.OptionValue] = []
    for each in settings:
        if each not in found:
            found.append(each)
    return found


def _shown(value: object) -> str:
    return json.dumps(value) if isinstance(value, (str, int, float, bool, list)) else "none"
