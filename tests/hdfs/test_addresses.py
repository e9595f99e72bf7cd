"""The addresses of datanodes that HDFS clients get."""

from __future__ import annotations

import asyncio

from peacefs.coordinator.hdfs.addresses import Addresses


def test_name_that_cannot_be_resolved_stays_a_name_and_others_are_found() -> None:
    too_long = "a" * 64  # RFC 1035, section 2.3.4: a label has at most 63 octets.
    addresses = Addresses()
    asyncio.run(addresses.look_up([too_long, "192.0.2.7", "localhost"]))
    assert addresses.of(too_long) == too_long
    assert addresses.of("192.0.2.7") == "192.0.2.7"
    assert addresses.of("localhost") in ("127.0.0.1", "::1")
