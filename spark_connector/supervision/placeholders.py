"""Replace placeholders for a run's own facts in the arguments of a command: `{checkpoint}`, `{query}` and their
like.

Names come from users, and a word of a command line may be read by a shell, at once or by what is started. So no
list may have a placeholder in what looks like a script, and nothing that any shell takes for more than itself is
ever put into a word: a run with such a name is not started. A list without placeholders takes every name, from the
environment variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from peacefs.protocol.errors import QueryFailed, StartupError

NAMES: Final = ("checkpoint", "coordinator", "query", "run")
_PLACEHOLDER = re.compile("{(" + "|".join(NAMES) + ")}")
#: A shell leaves words of these characters as they are, however often it reads them: see `shlex.quote`.
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]*", re.ASCII)
#: An argument after which the next is read as a script: `sh -c`, `bash -lc`, `perl -e`, `python -c`, `su
#: --command`, ...
_SCRIPT_FOLLOWS = re.compile(r"-[A-Za-z]{0,4}[ceE]|--(command|eval|execute|session-command)")


def check_words(command: str, words: Sequence[str]) -> None:
    """Raise StartupError for a placeholder within a script: a name could become a part of it."""
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
    """Raise StartupError where the first argument that somebody adds would be read as a script."""
    if words and _SCRIPT_FOLLOWS.fullmatch(words[-1]):
        raise StartupError(
            f"the command {command} takes extra arguments after {words[-1]!r}: who registers a query could have "
            "anything run"
        )


def fill(words: Sequence[str], facts: Mapping[str, str]) -> list[str]:
    """Put the facts where the placeholders are. Raise QueryFailed for one that is not safe in a word."""
    return [_PLACEHOLDER.sub(lambda found: _plain(found[1], facts[found[1]]), word) for word in words]


def _plain(name: str, value: str) -> str:
    if not _PLAIN.fullmatch(value) or value.startswith("-"):
        raise QueryFailed(
            f"{{{name}}} would be {value!r}, which is no plain word for a shell; let the command take it from "
            f"PEACEFS_{name.upper()}, or choose another name"
        )
    return value


def _with_place(words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The words, each with whether the one before it says that a script follows."""
    before = ""
    for word in words:
        yield word, _SCRIPT_FOLLOWS.fullmatch(before) is not None
        before = word
