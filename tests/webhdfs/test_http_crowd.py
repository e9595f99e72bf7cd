"""Above the limits of connections and memory, the least useful connections are closed."""

from __future__ import annotations

import pytest

from peacefs.service import http_crowd
from peacefs.service.client_shares import Shares, client_of
from peacefs.service.http_crowd import HttpCrowd


class Connection:
    """Records whether it was closed."""

    def __init__(self, client: str = "10.0.0.1") -> None:
        self.client_address = client
        self.is_closed = False

    def abort(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_crowd, "http_connections_max", 6)
    monkeypatch.setattr(http_crowd, "http_connections_per_client_max", 4)
    monkeypatch.setattr(http_crowd, "http_heads_bytes_max", 100)
    monkeypatch.setattr(http_crowd, "http_unsent_bytes_max", 100)


def joined(crowd: HttpCrowd, *clients: str) -> list[Connection]:
    connections = [Connection(client) for client in clients]
    for each in connections:
        assert crowd.join(each, 0.0)
    return connections


def test_client_with_its_share_of_connections_loses_its_own_and_no_other() -> None:
    crowd = HttpCrowd()
    (other,) = joined(crowd, "10.0.0.2")
    crowd.waiting(other)
    hogs = joined(crowd, *["10.0.0.1"] * 4)
    for each in hogs[2:]:
        crowd.waiting(each)
    (new,) = joined(crowd, "10.0.0.1")
    assert [each.is_closed for each in (other, *hogs, new)] == [False, False, False, True, False, False]
    crowd.answering(hogs[3])
    assert not crowd.join(Connection(), 0.0), "all of its own are being answered"
    joined(crowd, "10.0.0.3")


def test_crowd_that_is_full_closes_who_has_asked_nothing_for_longest() -> None:
    crowd = HttpCrowd()
    members = joined(crowd, "a", "a", "a", "b", "b", "b")
    for each in (members[4], members[1]):
        crowd.waiting(each)
    joined(crowd, "c")
    assert [each.is_closed for each in members] == [False] * 4 + [True, False]
    joined(crowd, "c")
    assert not crowd.join(Connection("d"), 0.0)
    crowd.leave(members[0])
    joined(crowd, "d")


def test_unfinished_heads_have_a_bound_together() -> None:
    crowd = HttpCrowd()
    silent, first, second = joined(crowd, "a", "b", "c")
    crowd.waiting(silent)
    crowd.waiting(first, 40)
    crowd.waiting(second, 60)
    crowd.waiting(first, 41)
    assert [each.is_closed for each in (silent, first, second)] == [False, True, False]
    (third,) = joined(crowd, "b")
    crowd.waiting(third, 40)
    crowd.answering(second)
    crowd.waiting(third, 100)
    assert not third.is_closed


def test_answers_that_nobody_takes_have_a_bound_together() -> None:
    crowd = HttpCrowd()
    first, second, third = joined(crowd, "a", "b", "c")
    crowd.not_taking(first, 500)
    assert not first.is_closed, "alone"
    crowd.not_taking(second, 60)
    assert first.is_closed
    crowd.taken(second)
    crowd.not_taking(third, 90)
    assert not second.is_closed


def test_network_that_one_customer_has_of_ipv6_is_one_client() -> None:
    assert client_of("2001:db8:1:2:3::4") == client_of("2001:db8:1:2::1") != client_of("2001:db8:1:3::1")
    assert client_of("::ffff:10.0.0.1") == client_of("10.0.0.1") != client_of("10.0.0.2")
    assert client_of(None) == client_of("no address") == ""


def test_share_is_taken_and_given_back_to_the_last() -> None:
    shares = Shares(10, 6)
    assert shares.take("a", 6) and not shares.take("a")
    assert shares.take("b", 4) and not shares.take("b")
    shares.give_back("a", 6)
    assert (shares.of("a"), shares.total) == (0, 4)
    assert shares.take("b", 2)
