"""Executes `peacefs count` and `peacefs quota ...`: the size of trees, and its limits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from peacefs.client.control.values import ContentSummary
from peacefs.protocol.errors import BadRequest

from .listing import print_line
from .presentation import human_size
from .session import Session

NO_LIMIT: Final = -1
_SIZE = re.compile(r"(\d+)\s*([kmgtpe]?)i?b?", re.IGNORECASE)
_LETTERS = " kmgtpe"
_BYTES_MAX: Final = 2**63 - 2


@dataclass(frozen=True)
class CountStyle:
    """The options of `count`: quotas, readable sizes, one JSON object per line."""

    quotas: bool
    human: bool
    as_json: bool


def count_trees(session: Session, texts: Sequence[str], style: CountStyle) -> None:
    """Print one line per path, with the columns of `hdfs dfs -count`."""
    for place in session.each(texts):
        with session.errors.about(place.text):
            summary = place.files.content_summary(place.path)
            if style.as_json:
                print_line(msgspec.json.encode({"path": place.path} | msgspec.to_builtins(summary)).decode())
            else:
                print_line(_line(summary, place.text, style))


def set_quotas(session: Session, texts: Sequence[str], names: int | None, space: int | None) -> None:
    """Set limits; None keeps a limit, NO_LIMIT removes it."""
    for place in session.each(texts):
        with session.errors.about(place.text):
            place.files.quotas.set(place.path, names=names, space=space)


def parse_size(text: str) -> int:
    """Parse a number of bytes: 1000, 64m, 10g, 1 TiB; prefixes are binary. Raises BadRequest."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise BadRequest(f"`{text}' is no number of bytes: try 1000, 64m or 10g")
    size = int(found[1]) << (10 * _LETTERS.index(found[2].lower() or " "))
    if size > _BYTES_MAX:
        raise BadRequest(f"`{text}' is too large")
    return size


def _line(summary: ContentSummary, text: str, style: CountStyle) -> str:
    size = human_size if style.human else str
    columns = f"{summary.directories:>12} {summary.files:>12} {size(summary.length):>18} {text}"
    if not style.quotas:
        return columns
    names = _of_quota(summary.names_quota, summary.directories + summary.files)
    space = _of_quota(summary.space_quota, summary.space_consumed)
    shown = [("none", "inf") if of is None else (size(of[0]), _signed(of[1], style)) for of in (names, space)]
    (names_max, names_left), (space_max, space_left) = shown
    return f"{names_max:>12} {names_left:>15} {space_max:>15} {space_left:>15} {columns}"


def _of_quota(quota: int, used: int) -> tuple[int, int] | None:
    """Return the quota and its unused part, which is negative if the use exceeds the quota."""
    return None if quota == NO_LIMIT else (quota, quota - used)


def _signed(left: int, style: CountStyle) -> str:
    if not style.human:
        return str(left)
    return f"-{human_size(-left)}" if left < 0 else human_size(left)
