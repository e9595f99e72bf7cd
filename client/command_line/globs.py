"""Patterns in path arguments, with the syntax of `hdfs dfs`.

`*`, `?`, `[a-z]`, `[^a]`, `{one,other}`, and `\\` before a literal character. No pattern matches `/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from peacefs.protocol.errors import BadRequest

#: Returns the names in a directory; empty if it is not a directory.
Names = Callable[[str], Iterable[str]]
Exists = Callable[[str], bool]

_SPECIAL = frozenset("*?[{\\")


def is_glob(path: str) -> bool:
    """Return whether a path must be expanded. This includes paths that contain only escapes."""
    return not _SPECIAL.isdisjoint(path)


def expand(path: str, names: Names, exists: Exists) -> list[str]:
    """Return the paths that match an absolute pattern, in the order of `names`. Raises BadRequest."""
    found = [""]
    must_check = False
    for component in path.strip("/").split("/"):
        match = component_pattern(component)
        if isinstance(match, str):
            found = [f"{base}/{match}" for base in found]
            must_check = True
        else:
            found = [f"{base}/{name}" for base in found for name in names(base or "/") if match.fullmatch(name)]
            must_check = False
    return [candidate for candidate in found if exists(candidate)] if must_check else found


def component_pattern(text: str) -> re.Pattern[str] | str:
    """Parse one component: return a literal name or a pattern. Raises BadRequest if a bracket is not closed."""
    return _Component(text).parse()


class _Component:
    """Parses a component from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._expression: list[str] = []
        self._literal: list[str] = []
        self._open_braces = 0
        self._is_pattern = False

    def parse(self) -> re.Pattern[str] | str:
        while self._at < len(self._text):
            self._one(self._take())
        if self._open_braces:
            raise self._not_closed("{")
        if not self._is_pattern:
            return "".join(self._literal)
        return re.compile("".join(self._expression), re.DOTALL)

    def _one(self, character: str) -> None:
        match character:
            case "*":
                self._special(".*")
            case "?":
                self._special(".")
            case "[":
                self._special(self._set())
            case "{":
                self._open_braces += 1
                self._special("(?:")
            case "," if self._open_braces:
                self._special("|")
            case "}" if self._open_braces:
                self._open_braces -= 1
                self._special(")")
            case "\\":
                self._plain(self._take_escaped())
            case _:
                self._plain(character)

    def _set(self) -> str:
        """Parse the rest of `[...]`. A leading `^` or `!` negates it, `-` makes a range."""
        negated = self._text[self._at : self._at + 1] in ("^", "!") and bool(self._take())
        body = ""
        while (character := self._take()) != "]" or not body:
            if character == "-" and body and self._text[self._at : self._at + 1] != "]":
                body += "-" + self._member(self._take())
            else:
                body += self._member(character)
        expression = f"[{'^' if negated else ''}{body}]"
        try:
            re.compile(expression)
        except re.error:
            raise BadRequest(f"the pattern {self._text!r} has a range that runs backwards") from None
        return expression

    def _member(self, character: str) -> str:
        """Return a literal character of a set, escaped for the regular expression."""
        return re.escape(self._take_escaped() if character == "\\" else character)

    def _special(self, expression: str) -> None:
        self._is_pattern = True
        self._expression.append(expression)

    def _plain(self, character: str) -> None:
        self._literal.append(character)
        self._expression.append(re.escape(character))

    def _take(self) -> str:
        if self._at == len(self._text):
            raise self._not_closed("[")
        self._at += 1
        return self._text[self._at - 1]

    def _take_escaped(self) -> str:
        if self._at == len(self._text):
            raise BadRequest(f"the pattern {self._text!r} ends with a \\ that escapes nothing")
        return self._take()

    def _not_closed(self, opening: str) -> BadRequest:
        return BadRequest(f"the pattern {self._text!r} does not close its {opening}")
