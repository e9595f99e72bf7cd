"""The pages that a user reads, and their links, headings, command lines and Python code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
#: The cluster's address in the guides.
GUIDE_ADDRESS = "127.0.0.1:9870"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
#: Shell tokens that end one simple command.
_SEPARATORS = {"|", "||", "&&", ";", ">", ">>", "<"}


@dataclass(frozen=True)
class Page:
    """One Markdown file of the tree."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def prose(self) -> str:
        """The page without fenced blocks."""
        return _FENCE.sub("", self.text)

    def blocks(self, language: str) -> list[str]:
        return [body for kind, body in _FENCE.findall(self.text) if kind == language]

    def links(self) -> list[str]:
        return _LINK.findall(self.prose)

    def anchors(self) -> set[str]:
        """Return the anchors that `page.md#anchor` may name, by GitHub's rule."""
        return {
            re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(self.prose)
        }

    def command_lines(self, program: str) -> Iterator[list[str]]:
        """Return each use of `program`, in code blocks and in backquotes: the words after the program's name."""
        shell = "\n".join(self.blocks("")).replace("\\\n", " ")
        for line in (*shell.splitlines(), *re.findall(r"`([^`]+)`", self.prose)):
            yield from _uses(" ".join(line.split()), program)


def _uses(line: str, program: str) -> Iterator[list[str]]:
    # `$(peacefs ...)` is a command of its own.
    for inner in re.findall(r"\$\(([^)]*)\)", line):
        yield from _uses(inner, program)
    lexer = shlex.shlex(re.sub(r"\$\([^)]*\)", "WORD", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # an apostrophe: prose, not a command
        return
    command = list[str]()
    for word in [*words, ";"]:
        if word in _SEPARATORS:
            named = [place for place, part in enumerate(command) if part.split("/")[-1] == program]
            if named and named[0] == 0:
                yield command[1:]
            command = []
        else:
            command.append(word)


def guides() -> list[Page]:
    """Return README.md and the pages of docs, except the decisions, which have their own tracers."""
    return [Page(path) for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))]


def all_pages() -> list[Page]:
    return [Page(path) for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))]
