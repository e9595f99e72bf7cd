"""Measured rates become a description: noise is smoothed, real differences stay."""

from __future__ import annotations

import pytest

from peacefs.topology.measured import sides, steady, with_measured
from peacefs.topology.model import Link, Topology
from peacefs.topology.rate_curve import RateCurve

_TREE = (
    Topology(switches=("core",), root="core")
    .with_server("a", "/1")
    .with_server("b", "/1")
    .with_server("c", "/2/x")
    .with_server("d", "/3")
)


def _curve(*rates: float) -> RateCurve:
    return RateCurve(tuple((2**at, rate) for at, rate in enumerate(rates)))


def _link(a: str, b: str) -> Link:
    return next(link for link in _TREE.links if link.ends == {a, b})


def test_more_streams_are_better_only_where_that_is_more_than_chance() -> None:
    assert steady(_curve(300.123e6, 501e6, 502e6, 499e6)) == _curve(300e6, 501e6, 501e6, 501e6)
    assert steady(_curve(300.123e6, 501e6, 502e6, 499e6)).best_streams == 2
    assert steady(_curve(100.0, 90.0)) == _curve(100.0, 90.0)


def test_disks_that_are_alike_become_one_and_a_slow_one_stays_itself() -> None:
    disks = {
        "a": _curve(30e6, 45e6),
        "b": _curve(30.4e6, 44.6e6),
        "c": _curve(29.7e6, 45.3e6),
        "d": _curve(8e6, 9e6),
    }
    measured = with_measured(_TREE, disks, {})
    curves = [measured.servers[name].disk for name in "abcd"]
    assert curves[0] == curves[1] == curves[2]
    assert curves[3] == _curve(8e6, 9e6)


def test_capacity_that_was_not_measured_stays() -> None:
    measured = with_measured(_TREE, {"a": _curve(1e6)}, {frozenset(("/1", "core")): 11_934_670.6})
    rates = {tuple(sorted(link.ends)): link.bytes_s for link in measured.links}
    assert rates.pop(("/1", "core")) == 11.9e6
    assert set(rates.values()) == {125e6}
    assert measured.servers["b"] == _TREE.servers["b"]
    assert with_measured(_TREE, {}, {}) == _TREE


@pytest.mark.parametrize(
    ("ends", "one", "other"),
    [
        (("/1", "core"), ["a", "b"], ["c", "d"]),
        (("/2/x", "/2"), ["c"], ["a", "b", "d"]),
        (("/2", "core"), ["c"], ["a", "b", "d"]),
    ],
)
def test_a_link_of_a_tree_has_two_sides(ends: tuple[str, str], one: list[str], other: list[str]) -> None:
    assert sides(_TREE, _link(*ends)) == (one, other)
