"""Emulated links have their configured rate: not more, which would invalidate bounds, nor much less."""

from __future__ import annotations

import os
import shutil

import pytest

from benchmarks.emulation import flows
from benchmarks.emulation.network import CannotEmulate, EmulatedNetwork

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("tc")),
    reason="network namespaces need root and iproute2",
)

_HOST_BYTES_S, _BETWEEN_BYTES_S = 8e6, 2e6


def test_a_link_between_racks_carries_what_it_is_made_for_each_way() -> None:
    try:
        with EmulatedNetwork((2, 2), _HOST_BYTES_S, _BETWEEN_BYTES_S) as network:
            first, second = network.hosts[:2], network.hosts[2:]
            across = flows.between(first, second, 1.5)
            inside = flows.between(first[:1], first[1:], 1.5)
    except CannotEmulate as reason:
        pytest.skip(str(reason))
    assert 0.7 * _BETWEEN_BYTES_S < across < 1.05 * _BETWEEN_BYTES_S
    assert 0.7 * _HOST_BYTES_S < inside < 1.05 * _HOST_BYTES_S
