"""Replace placeholders such as `{checkpoint}` and `{query}` in the arguments of a command.

Values come from users, and a shell may read a word of the command line, at once or later. So a list may not have a
placeholder in anything that looks like a script, and a run is not started if a value contains a character that is
special to a shell. Without placeholders, any value works: the command reads it from an environment variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from peacefs.protocol.errors import QueryFailed, StartupError

NAMES: Final = ("checkpoint", "coordinator", "query", "run")
_PLACEHOLDER = re.compile("{(" + "|".join(NAMES) + ")}")
#: Words of these characters mean the same to a shell however often it parses them (see `shlex.quote`).
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]*", re.ASCII)
#: Options whose next argument is a script: `sh -c`, `bash -lc`, `perl -e`, `python -c`, `su --command`, ...
_SCRIPT_FOLLOWS = re.compile(r"-[A-Za-z]{0,4}[ceE]|--(command|eval|execute|session-command)")


def check_words(command: str, words: Sequence[str]) -> None:
    """Raise StartupError if a placeholder is inside a script, since a value could become code."""
    for word, is_script in _with_place(words):
        if not _PLACEHOLDER.search(word):
            continue
        if is_script or not _PLAIN.fullmatch(_PLACEHOLDER.sub("", word)):
            raise StartupError(
                f"the command {command} has a placeholder in {word!r}, which a shell or an interpreter may read "
                'as a script. Make it a separate word: ["-c", "exec job \\"$1\\"", "sh", "{checkpoint}"], '
                "or use the environment variable, as $PEACEFS_CHECKPOINT"
            )


def check_extra(command: str, words: Sequence[str]) -> None:
    """Raise StartupError if an added argument would be read as a script."""
    if words and _SCRIPT_FOLLOWS.fullmatch(words[-1]):
        raise StartupError(
            f"the command {command} takes extra arguments after {words[-1]!r}: who registers a query could have "
            "anything run"
        )


def fill(words: Sequence[str], facts: Mapping[str, str]) -> list[str]:
    """Replace the placeholders. Raises QueryFailed if a value is not safe in a word."""
    return [_PLACEHOLDER.sub(lambda found: _plain(found[1], facts[found[1]]), word) for word in words]


def _plain(name: str, value: str) -> str:
    if not _PLAIN.fullmatch(value) or value.startswith("-"):
        raise QueryFailed(
            f"{{{name}}} would be {value!r}, which is no plain word for a shell; let the command take it from "
            f"PEACEFS_{name.upper()}, or choose another name"
        )
    return value


def _with_place(words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield each word, and whether the word before says that it is a script."""
    before = ""
    for word in words:
        yield word, _SCRIPT_FOLLOWS.fullmatch(before) is not None
        before = word
