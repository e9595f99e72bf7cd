"""Memory of unfinished frames: how much is held, and which connection is closed above the limit."""

from __future__ import annotations

import msgspec
import pytest

from peacefs.coordinator.namespace.append import file_chunks_max
from peacefs.coordinator.rpc.client_session import client_frame_bytes_max
from peacefs.protocol.errors import Overloaded
from peacefs.protocol.limits import pipeline_hops_max
from peacefs.protocol.messages import CompleteFile, Receipt, WrittenChunk
from peacefs.runtime.frame_budget import ConnectionCounts, FrameBudget


def test_frame_begun_longest_ago_goes_over_the_budget_however_it_grows() -> None:
    budget: FrameBudget[str] = FrameBudget(100)
    assert budget.hold("first", 10) is None
    assert budget.hold("second", 60) is None
    assert budget.hold("first", 40) is None
    assert budget.hold("third", 1) == "first"
    assert budget.hold("first", 0) is None
    assert budget.held_bytes == 61
    # A client that starts again counts as the newest.
    assert budget.hold("first", 40) == "second"


def test_frame_budget_gives_nothing_back_twice() -> None:
    budget: FrameBudget[str] = FrameBudget(100)
    budget.hold("one", 50)
    for _ in range(3):
        budget.hold("one", 0)
    assert budget.held_bytes == 0


def test_a_crowd_is_counted_by_kind() -> None:
    crowd: ConnectionCounts[str] = ConnectionCounts(2)
    for kind in ("here", "here", "there"):
        crowd.enter(kind)
    with pytest.raises(Overloaded, match="here has 2 connections"):
        crowd.enter("here")
    crowd.leave("here")
    crowd.enter("here")


def test_the_longest_that_a_client_has_to_say_fits_its_frame() -> None:
    receipts = [Receipt("dn-0123456789ab", b"m" * 16)] * pipeline_hops_max
    chunk = WrittenChunk(2**63 - 1, 2**63 - 1, 2**26, 2**32 - 1, receipts)
    # A token with a path of maximum length, in base64.
    longest = CompleteFile("t" * 48_000, [chunk] * file_chunks_max)
    assert client_frame_bytes_max / 2 < len(msgspec.msgpack.encode(longest)) < client_frame_bytes_max
