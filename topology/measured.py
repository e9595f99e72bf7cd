"""Puts measured rates into a topology: smooths the curves, merges similar disks, rounds the rates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from statistics import median
from typing import Final

from .model import Link, Topology
from .rate_curve import RateCurve

# Disks whose rates differ by less than this share are considered equal.
calibration_tolerance: Final = 0.1


_DIGITS = 3


def with_measured(
    topology: Topology, disks: Mapping[str, RateCurve], links: Mapping[frozenset[str], float]
) -> Topology:
    """Return the topology with measured `disks` (by server) and `links` (by their ends); other rates stay."""
    curves = _alike({name: steady(curve) for name, curve in disks.items()})
    servers = {
        name: replace(server, disk=curves.get(name, server.disk)) for name, server in topology.servers.items()
    }
    cables = (
        replace(link, bytes_s=_round(links[link.ends])) if link.ends in links else link for link in topology.links
    )
    return replace(topology, servers=servers, links=tuple(cables))


def sides(topology: Topology, link: Link) -> tuple[list[str], list[str]]:
    """Return the servers on each side of a switch link of a tree, sorted by name."""
    beyond = {link.a, link.b}
    waiting = [link.a]
    reached = {link.a}
    while waiting:
        at = waiting.pop()
        for onward in topology.links_at[at]:
            end = onward.other(at)
            if onward.ends != beyond and end not in reached:
                reached.add(end)
                waiting.append(end)
    servers = sorted(topology.servers)
    return [name for name in servers if name in reached], [name for name in servers if name not in reached]


def steady(curve: RateCurve) -> RateCurve:
    """Replace rates that differ only by measurement noise by the same rate."""
    points: list[tuple[int, float]] = []
    for streams, rate in curve.points:
        like = next((known for _, known in points if _is_like(rate, known)), None)
        points.append((streams, _round(rate) if like is None else like))
    return RateCurve(tuple(points))


def _alike(curves: Mapping[str, RateCurve]) -> dict[str, RateCurve]:
    """Replace curves that are similar to the median curve by the median curve."""
    if not curves:
        return {}
    typical = steady(_median(curves.values()))
    return {name: typical if _are_like(curve, typical) else curve for name, curve in curves.items()}


def _median(curves: Collection[RateCurve]) -> RateCurve:
    counts = sorted({streams for curve in curves for streams, _ in curve.points})
    return RateCurve(tuple((streams, median(curve.rate(streams) for curve in curves)) for streams in counts))


def _are_like(curve: RateCurve, other: RateCurve) -> bool:
    counts: Iterable[int] = {streams for streams, _ in (*curve.points, *other.points)}
    return all(_is_like(curve.rate(streams), other.rate(streams)) for streams in counts)


def _is_like(rate: float, other: float) -> bool:
    return abs(rate - other) <= calibration_tolerance / 2 * (rate + other) / 2


def _round(rate: float) -> float:
    return float(f"{rate:.{_DIGITS}g}")
