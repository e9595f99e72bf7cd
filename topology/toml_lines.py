"""Find the line of a table, key or value in a TOML file, which tomllib does not tell and error messages need."""

from __future__ import annotations

import re

_HEADER = re.compile(r"^\s*\[\[?\s*([A-Za-z_]+)\s*\]\]?\s*(?:#.*)?$")


class NoLines:
    """The lines of a description that never was a file: mistakes are reported without a line."""

    def find(self, table: str | None, index: int, word: str | None = None, *, last: bool = False) -> int | None:
        return None


class TomlLines(NoLines):
    """The lines of a file, by the table they belong to. Lines count from 1."""

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
        """The first (or `last`) line of the `index`th table so named (None: before all tables) that mentions
        `word` as a key or a quoted value; else the table's first line; None if it has no header of its own."""
        spans = self._spans.get(table, []) if table else [self._top]
        if index >= len(spans):
            return None
        span = spans[index]
        mention = re.compile(rf"^\s*{re.escape(word or '')}\s*=|[\"']{re.escape(word or '')}[\"']")
        found = [number for number in span if word is not None and mention.search(self._lines[number - 1])]
        return (found[-1] if last else found[0]) if found else span.start
