"""`peacefs completion`: print a script that makes a shell complete commands, options and their values."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated, Final

import typer

#: The variable that the script sets when it asks for completions.
COMPLETION_VARIABLE: Final = "_PEACEFS_COMPLETE"


class Shell(Enum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)]) -> None:
    """Print a script with which a shell completes.

    For bash: `peacefs completion bash > ~/.local/share/bash-completion/completions/peacefs`.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name="peacefs", complete_var=COMPLETION_VARIABLE, shell=shell.value)
    sys.stdout.write(script.strip() + "\n")


def prepare_completion() -> None:
    """Make Typer answer the completion script."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
