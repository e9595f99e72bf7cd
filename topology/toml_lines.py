"""Finds the line of a table, key or value in a TOML file for error messages; tomllib does not report lines."""

from __future__ import annotations

import re

_HEADER = re.compile(r"^\s*\[\[?\s*([A-Za-z_]+)\s*\]\]?\s*(?:#.*)?$")


class NoLines:
    """Used for a description that is not from a file: errors have no line."""

    def find(self, table: str | None, index: int, word: str | None = None, *, last: bool = False) -> int | None:
        return None


class TomlLines(NoLines):
    """The lines of a file by table. Lines count from 1."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        headers = [
            (number, found.group(1))
            for number, line in enumerate(self._lines, 1)
            if (found := _HEADER.match(line)) is not None
        ]
        ends = [number - 1 for number, _ in headers[1:]] + [len(self._lines)]
        self._spans: dict[str, list[range]] = {}
        for (start, table), end in zip(headers, ends, strict=False):
            self._spans.setdefault(table, []).append(range(start, end + 1))
        self._top = range(1, headers[0][0] if headers else len(self._lines) + 1)

    def find(self, table: str | None, index: int, word: str | None = None, *, last: bool = False) -> int | None:
        """Return the first (or `last`) line in the `index`th table of this name that has `word` as a key or quoted
        value; else the table's first line; None if there is no such table. Table None is the part before all
        tables.
        """
        spans = self._spans.get(table, []) if table else [self._top]
        if index >= len(spans):
            return None
        span = spans[index]
        mention = re.compile(rf"^\s*{re.escape(word or '')}\s*=|[\"']{re.escape(word or '')}[\"']")
        found = [number for number in span if word is not None and mention.search(self._lines[number - 1])]
        return (found[-1] if last else found[0]) if found else span.start
