"""Patterns match as in `hdfs dfs`, and an escaped name matches only itself."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.client.command_line.globs import component_pattern, expand, is_glob
from peacefs.protocol.errors import BadRequest

TREE = {
    "/": ["a", "b*c", "data", "logs"],
    "/data": ["2025", "2026"],
    "/data/2025": ["part-0", "part-1"],
    "/data/2026": ["part-1", "part-10", "x"],
    "/logs": ["part-1"],
}
PATHS = {f"{directory.rstrip('/')}/{name}" for directory, names in TREE.items() for name in names}


def expanded(pattern: str) -> list[str]:
    return expand(pattern, lambda path: TREE.get(path, []), PATHS.__contains__)


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("/*", ["/a", "/b*c", "/data", "/logs"]),
        ("/data/*/part-1", ["/data/2025/part-1", "/data/2026/part-1"]),
        ("/data/2026/part-?", ["/data/2026/part-1"]),
        ("/data/202[6-9]/part-*", ["/data/2026/part-1", "/data/2026/part-10"]),
        ("/data/2026/part[*--]1", ["/data/2026/part-1"]),
        ("/data/202[^6]/*", ["/data/2025/part-0", "/data/2025/part-1"]),
        ("/data/202[!6]/*-0", ["/data/2025/part-0"]),
        ("/{data/2025,logs}", None),
        ("/{logs,a,none}", ["/a", "/logs"]),
        ("/*/*/x", ["/data/2026/x"]),
        (r"/b\*c", ["/b*c"]),
        (r"/b\*?", ["/b*c"]),
        ("/a/*", []),
        ("/data/none/*", []),
        ("/data/none*", []),
    ],
)
def test_a_pattern_stands_for_these_paths(pattern: str, paths: list[str] | None) -> None:
    assert is_glob(pattern)
    if paths is None:
        with pytest.raises(BadRequest, match="does not close"):
            expanded(pattern)
    else:
        assert expanded(pattern) == paths


@pytest.mark.parametrize("text", ["[", "[]", "[a", "{", "{a,b", "a\\", "[\\", "[z-a]"])
def test_a_pattern_that_is_not_closed_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        component_pattern(text)


@pytest.mark.parametrize("text", ["a]", "a}", "a,b", "a-b", "^", "!", "(a|b)", "a.c", "$"])
def test_characters_that_mean_something_elsewhere_mean_themselves(text: str) -> None:
    assert component_pattern(text) == text
    pattern = component_pattern(text + "*")
    assert isinstance(pattern, re.Pattern)
    assert pattern.fullmatch(text + "more")


names = st.text(st.characters(exclude_characters="/\0"), min_size=1)


@given(name=names)
def test_a_name_with_every_character_escaped_is_that_name(name: str) -> None:
    assert component_pattern("".join("\\" + character for character in name)) == name


@given(name=names)
def test_a_set_of_one_character_matches_it_and_nothing_else(name: str) -> None:
    pattern = component_pattern(f"[\\{name[0]}]*")
    assert isinstance(pattern, re.Pattern)
    assert pattern.fullmatch(name)
    assert not pattern.fullmatch(chr((ord(name[0]) + 1) % 0xD800) + name)


@given(text=st.text("ab*?[]{}^!-,\\"), name=st.text("ab*-"))
def test_no_pattern_is_more_than_refused(text: str, name: str) -> None:
    try:
        match = component_pattern(text)
    except BadRequest:
        return
    if isinstance(match, re.Pattern):
        match.fullmatch(name)
