"""Executes `peacefs find`: lists the paths of trees whose names match."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peacefs.client.control.values import FileStatus

from .descent import Descent, descend
from .globs import component_pattern
from .listing import print_line
from .session import FilePlace, Session

Matches = Callable[[str], bool]


@dataclass(frozen=True)
class FindStyle:
    """The patterns that a name must match, and whether a zero byte ends each path."""

    names: Sequence[str]
    names_of_any_case: Sequence[str]
    zeros: bool


def find(session: Session, texts: Sequence[str], style: FindStyle) -> None:
    """Print each path and everything below it, parents first, if all patterns match. Raises BadRequest."""
    patterns = [_matching(text, 0) for text in style.names]
    patterns += [_matching(text, re.IGNORECASE) for text in style.names_of_any_case]
    search = _Search(session, patterns, style.zeros)
    for place in session.each(texts):
        with session.errors.about(place.text):
            descend(search.tree(place, place.files.status(place.path)))


def _matching(text: str, flags: int) -> Matches:
    pattern = component_pattern(text)
    source = re.escape(pattern) if isinstance(pattern, str) else pattern.pattern
    compiled = re.compile(source, re.DOTALL | flags)
    return lambda name: compiled.fullmatch(name) is not None


class _Search:
    def __init__(self, session: Session, patterns: Sequence[Matches], zeros: bool) -> None:
        self._session = session
        self._patterns = patterns
        self._zeros = zeros

    def tree(self, place: FilePlace, status: FileStatus) -> Descent:
        if all(matches(place.name) for matches in self._patterns):
            if self._zeros:
                sys.stdout.write(f"{place.text}\0")
            else:
                print_line(place.text)
        if not status.is_directory:
            return
        for page in place.files.pages(place.path):
            for entry in page.entries:
                child = place.child(entry.name)
                with self._session.errors.about(child.text):
                    yield self.tree(child, entry)
