"""Formats metadata as `hdfs dfs` does: permission strings, sizes, dates, `-stat` formats."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peacefs.client.control.values import FileStatus

_PREFIXES = "KMGTPE"
_STICKY = 0o1000
#: Control characters (C0, DEL, C1), characters that change the writing direction, line separators, surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
#: Python's dates end with the year 9999; WebHDFS allows later times.
_LAST_SECOND = 253_402_214_400


def permission_string(status: FileStatus) -> str:
    """Return a string such as `drwxr-xr-x`; the last letter is t or T for a sticky directory."""
    bits = "".join(
        letter if status.permission & (1 << place) else "-"
        for place, letter in zip(range(8, -1, -1), "rwxrwxrwx", strict=True)
    )
    if status.permission & _STICKY:
        bits = bits[:-1] + ("t" if bits.endswith("x") else "T")
    return ("d" if status.is_directory else "-") + bits


def printable(text: str) -> str:
    """Escape characters that control a terminal. JSON keeps its meaning when escaped like this."""
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return _SHORT_ESCAPES.get(found[0], f"\\u{ord(found[0]):04x}")


def human_size(size: int) -> str:
    """Format a number of bytes with a binary prefix, as Hadoop does: `64 M`, `1.2 K`, `17`."""
    if size < 1024:
        return str(size)
    power = min((size.bit_length() - 1) // 10, len(_PREFIXES))
    unit = 1 << (10 * power)
    shown = str(size // unit) if size % unit == 0 else f"{size / unit:.1f}"
    return f"{shown} {_PREFIXES[power - 1]}"


def local_minute(milliseconds: int) -> str:
    """Format a time such as `2026-11-20 14:03`, in the local time zone."""
    return datetime.fromtimestamp(min(milliseconds // 1000, _LAST_SECOND)).strftime("%Y-%m-%d %H:%M")


def utc_second(milliseconds: int) -> str:
    """Format a time such as `2026-11-20 14:03:59`, in UTC."""
    return datetime.fromtimestamp(min(milliseconds // 1000, _LAST_SECOND), UTC).strftime("%Y-%m-%d %H:%M:%S")


def as_record(status: FileStatus) -> dict[str, Any]:
    """Return the record for `--json`. Lengths are bytes, times milliseconds since 1970, permissions octal."""
    return {
        "path": status.path,
        "type": "DIRECTORY" if status.is_directory else "FILE",
        "length": status.length,
        "owner": status.owner,
        "group": status.group,
        "permission": f"{status.permission:o}",
        "replication": status.replication,
        "blockSize": status.block_bytes,
        "modificationTime": status.modified_ms,
        "accessTime": status.accessed_ms,
    }


def format_stat(template: str, status: FileStatus) -> str:
    """Fill a `-stat` format. `%%` is a percent sign; `%` before an unknown letter stays as it is."""
    return re.sub(r"%(.)", lambda found: _stat_field(found[1], status), template)


def _stat_field(letter: str, status: FileStatus) -> str:
    match letter:
        case "a":
            return f"{status.permission:o}"
        case "A":
            return permission_string(status)[1:]
        case "b":
            return str(status.length)
        case "F":
            return "directory" if status.is_directory else "regular file"
        case "g":
            return status.group
        case "n":
            return status.name
        case "o":
            return str(status.block_bytes)
        case "r":
            return str(status.replication)
        case "u":
            return status.owner
        case "x":
            return utc_second(status.accessed_ms)
        case "X":
            return str(status.accessed_ms)
        case "y":
            return utc_second(status.modified_ms)
        case "Y":
            return str(status.modified_ms)
        case "%":
            return "%"
        case other:
            return "%" + other
