"""Reserved ports: nobody else gets them, and their service can restart."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from peacefs.client.local_cluster.reserved_ports import ReservedPorts

_HOST = "127.0.0.1"
# A hundredth of the kernel's port range: this many random ports would hit an unreserved port several times.
_MANY = 300


@pytest.fixture
def reserved() -> Iterator[ReservedPorts]:
    ports = ReservedPorts(_HOST)
    yield ports
    ports.release()


def test_reserved_port_is_listened_on_again_and_again(reserved: ReservedPorts) -> None:
    port = reserved.take()
    for _ in range(3):
        with socket.create_server((_HOST, port)) as server, socket.create_connection((_HOST, port)) as client:
            accepted, _address = server.accept()
            # The side that closes first leaves the port in TIME_WAIT; here it is the server.
            accepted.close()
            assert client.recv(1) == b""


def test_no_other_server_and_no_client_draws_a_reserved_port(reserved: ReservedPorts) -> None:
    with ExitStack() as held:
        others = [held.enter_context(socket.create_server((_HOST, 0))) for _ in range(_MANY)]
        kept = {reserved.take() for _ in range(_MANY)}
        drawn = {each.getsockname()[1] for each in others}
        for _ in range(_MANY):
            drawn.add(held.enter_context(socket.create_server((_HOST, 0))).getsockname()[1])
            client = held.enter_context(socket.create_connection(others[0].getsockname()))
            held.enter_context(others[0].accept()[0])
            drawn.add(client.getsockname()[1])
    assert len(kept) == _MANY
    assert not kept & drawn


def test_released_port_can_be_taken_by_anybody(reserved: ReservedPorts) -> None:
    port = reserved.take()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((_HOST, port))
    reserved.release()
    reserved.release()
    with socket.socket() as other:
        other.bind((_HOST, port))
