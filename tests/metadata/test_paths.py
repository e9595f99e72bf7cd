"""Valid and invalid paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.coordinator.namespace.paths import (
    NamespacePath,
    check_creatable,
    check_name_length,
    parse_path,
)
from peacefs.protocol.errors import BadRequest, NameTooLong, PathLimitExceeded, PeacefsError


@pytest.mark.parametrize(
    ("text", "components"),
    [
        ("/", ()),
        ("//", ()),
        ("/a", ("a",)),
        ("/a/", ("a",)),
        ("//a///b//", ("a", "b")),
        ("/a b/é/...", ("a b", "é", "...")),
    ],
)
def test_slashes_are_normalised_as_hadoop_does(text: str, components: tuple[str, ...]) -> None:
    assert parse_path(text).components == components


@pytest.mark.parametrize("text", ["", "a", "a/b", "/a/./b", "/..", "/a\0b", "/half-a-pair-\ud800"])
def test_path_that_is_none_is_a_bad_request(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_path(text)


def test_paths_too_long_or_too_deep_are_refused() -> None:
    assert len(parse_path("/x" * 1000).components) == 1000
    with pytest.raises(PathLimitExceeded, match="1001 levels"):
        parse_path("/x" * 1001)
    with pytest.raises(PathLimitExceeded, match="8001 characters"):
        parse_path("/" + "x" * 8000)


def test_a_name_is_measured_in_bytes() -> None:
    check_name_length("x" * 255)
    check_name_length("é" * 127)
    with pytest.raises(NameTooLong, match=f"name limit of {'é' * 128} is exceeded: limit=255 length=256"):
        check_name_length("é" * 128)


@pytest.mark.parametrize("text", ["/a:b", "/2026-11-20T10:00/x", "/a/.snapshot", "/.snapshot/x", "/.reserved/raw"])
def test_names_that_hdfs_refuses_to_make_may_be_asked_for_but_not_made(text: str) -> None:
    with pytest.raises(BadRequest):
        check_creatable(parse_path(text))


def test_reserved_at_the_root_is_an_ordinary_name_elsewhere() -> None:
    check_creatable(parse_path("/a/.reserved"))


def test_a_path_is_not_under_itself_nor_under_one_whose_name_it_continues() -> None:
    assert parse_path("/a/b").is_under(parse_path("/a"))
    assert parse_path("/a").is_under(parse_path("/"))
    assert not parse_path("/a").is_under(parse_path("/a"))
    assert not parse_path("/ab").is_under(parse_path("/a"))


@given(st.text())
def test_a_path_is_parsed_to_what_prints_as_itself_or_refused(text: str) -> None:
    try:
        path = parse_path(text)
    except PeacefsError:
        return
    assert parse_path(str(path)) == path
    assert all(name and "/" not in name and name not in (".", "..") for name in path.components)
    assert path == NamespacePath(path.components) and path.is_root == (path.name == "")
