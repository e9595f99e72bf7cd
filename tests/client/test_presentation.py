"""Output has the format of `hdfs dfs`, so that scripts for it keep working."""

from __future__ import annotations

import json
import sys
import unicodedata

import msgspec
import pytest

from peacefs.client.command_line.presentation import (
    format_stat,
    human_size,
    permission_string,
    printable,
    utc_second,
)
from peacefs.client.control.values import FileStatus

FILE = FileStatus(
    path="/data/part 1",
    is_directory=False,
    length=1234,
    owner="alice",
    group="users",
    permission=0o640,
    modified_ms=1_700_000_000_999,
    accessed_ms=0,
    block_bytes=67108864,
    replication=3,
)
DIRECTORY = msgspec.structs.replace(FILE, path="/data", is_directory=True, length=0, permission=0o1777)


@pytest.mark.parametrize(
    ("status", "permission", "shown"),
    [
        (FILE, 0o644, "-rw-r--r--"),
        (FILE, 0o000, "----------"),
        (DIRECTORY, 0o755, "drwxr-xr-x"),
        (DIRECTORY, 0o1777, "drwxrwxrwt"),
        (DIRECTORY, 0o1776, "drwxrwxrwT"),
    ],
)
def test_permissions_are_ten_letters(status: FileStatus, permission: int, shown: str) -> None:
    assert permission_string(msgspec.structs.replace(status, permission=permission)) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0"),
        (1023, "1023"),
        (1024, "1 K"),
        (1234, "1.2 K"),
        (64 << 20, "64 M"),
        ((1 << 30) + (1 << 29), "1.5 G"),
        (5 << 60, "5 E"),
        (1 << 75, "32768 E"),
    ],
)
def test_sizes_for_people_have_binary_prefixes(size: int, shown: str) -> None:
    assert human_size(size) == shown


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("%y", "2023-11-14 22:13:20"),
        ("%b %n %o %r", "1234 part 1 67108864 3"),
        ("%F|%u|%g|%a|%A|%Y|%x|%X", "regular file|alice|users|640|rw-r-----|1700000000999|1970-01-01 00:00:00|0"),
        ("100%% of %n", "100% of part 1"),
        ("%q stays, and so does %", "%q stays, and so does %"),
    ],
)
def test_stat_formats_are_filled(template: str, shown: str) -> None:
    assert format_stat(template, FILE) == shown


def test_a_directory_says_so() -> None:
    assert format_stat("%F %A", DIRECTORY) == "directory rwxrwxrwt"


def test_times_are_cut_to_seconds_as_java_does() -> None:
    assert utc_second(1999) == "1970-01-01 00:00:01"


def _acts_on_a_terminal(character: str) -> bool:
    """Return whether a terminal acts on the character, by Unicode's tables: controls, separators, surrogates, bidi
    marks.
    """
    embeddings = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    marks = ("\N{LEFT-TO-RIGHT MARK}", "\N{RIGHT-TO-LEFT MARK}", "\N{ARABIC LETTER MARK}")
    return (
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(character) in embeddings
        or character in marks
    )


def test_exactly_the_characters_that_a_terminal_obeys_are_escaped() -> None:
    wrong = [
        hex(point)
        for point in range(sys.maxunicode + 1)
        if (printable(chr(point)) != chr(point)) != _acts_on_a_terminal(chr(point))
    ]
    assert wrong == []
    assert printable("a\tb\n\x1b[2J\u202egpj") == "a\\tb\\n\\u001b[2J\\u202egpj"


def test_json_that_is_escaped_so_means_the_same() -> None:
    name = "".join(map(chr, range(0x2100))) + "ß€😀"
    escaped = printable(msgspec.json.encode(name).decode())
    assert json.loads(escaped) == name
    assert all(character.isprintable() or not _acts_on_a_terminal(character) for character in escaped)
