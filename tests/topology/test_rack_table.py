"""Hadoop's rack tables and rack paths."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.protocol.errors import InvalidTopology
from peacefs.topology.loader import load_topology
from peacefs.topology.rack_table import parse_rack, parse_rack_table

TABLE = """\
# host            rack

10.0.0.1          /east/rack-1
10.0.0.2\t/east/rack-1/
worker-3.example  /west/rack-1
"""


def test_a_table_of_two_columns_becomes_a_tree() -> None:
    topology = parse_rack_table(TABLE)
    assert topology.racks == {"/east/rack-1": ("10.0.0.1", "10.0.0.2"), "/west/rack-1": ("worker-3.example",)}
    assert topology.is_tree


def test_a_table_can_be_loaded_from_a_file_of_any_name(tmp_path: Path) -> None:
    path = tmp_path / "topology.table"
    path.write_text(TABLE)
    assert load_topology(path) == parse_rack_table(TABLE)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("10.0.0.9", "two columns"),
        ("10.0.0.9 /rack-1 extra", "two columns"),
        ("10.0.0.1 /rack-9", "listed twice, first in line 3"),
        ("/rack-1 10.0.0.9", "no host"),
        ("10.0.0.9 //", "no rack"),
        ("10.0.0.9 /a//b", "no rack"),
        ("10.0.0.9 " + "/x" * 17, "16 levels"),
    ],
)
def test_a_bad_line_is_named(line: str, words: str) -> None:
    with pytest.raises(InvalidTopology, match=words) as raised:
        parse_rack_table(TABLE + line + "\n")
    assert raised.value.message.startswith("line 6: ")


def test_a_rack_has_one_spelling() -> None:
    assert parse_rack("rack-1") == parse_rack("/rack-1/") == parse_rack(" /rack-1 ") == "/rack-1"


@given(st.text(max_size=40))
def test_any_text_is_a_rack_or_refused_and_a_rack_stays_as_it_is(text: str) -> None:
    try:
        rack = parse_rack(text)
    except InvalidTopology:
        return
    assert rack.startswith("/") and not rack.endswith("/")
    assert parse_rack(rack) == rack


@given(st.text(alphabet="ab/# \n\t1", max_size=60))
def test_any_text_is_a_table_or_a_named_mistake(text: str) -> None:
    with suppress(InvalidTopology):
        assert parse_rack_table(text).is_tree
