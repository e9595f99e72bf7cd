"""The journal's calls to etcd, judged by etcd's own JSON gateway, over a relay that cuts connections."""

from __future__ import annotations

import base64
import itertools
import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

import pytest
from journal.relayed_member import Relay, relayed
from support.etcd import EtcdMember, EtcdMembers, etcd_members
from support.long_runs import often
from support.waiting import wait_until

from peacefs.coordinator.journal.etcd import EtcdJournal
from peacefs.coordinator.journal.etcd_client import EtcdAccess
from peacefs.coordinator.journal.port import Entry, Fenced, JournalIdentity, JournalUnsure, Look, Member, Standing

T = TypeVar("T")
A, B = Member("a:9870", "a:9820"), Member("b:9870", "b:9820")
_prefixes = itertools.count(1)
#: An HTTP/2 frame with this type begins or ends an answer.
_HEADERS, _FRAME_HEAD_BYTES = 1, 9


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMembers]:
    with etcd_members(tmp_path_factory.mktemp("etcd")) as members:
        yield members


@pytest.fixture
def relay(etcd: EtcdMembers) -> Iterator[Relay]:
    with relayed(etcd.endpoints[0]) as relay:
        yield relay


@pytest.fixture
def prefix() -> str:
    return f"/test-{next(_prefixes)}"


@pytest.fixture
def journal(relay: Relay, prefix: str) -> Iterator[EtcdJournal]:
    with closing(EtcdJournal(EtcdAccess((relay.endpoint,)), prefix)) as journal:
        assert journal.take(0, 1)
        yield journal


class Gateway:
    """etcd's own JSON gateway, which shows what is stored."""

    def __init__(self, member: EtcdMember) -> None:
        self._member = member

    def pairs(self, prefix: str) -> dict[str, tuple[bytes, int]]:
        """Return the value of each key below a prefix, and how often it was written."""
        asked = {"key": _text(prefix.encode()), "range_end": _text(prefix.encode() + b"\xff")}
        return {
            base64.b64decode(pair["key"]).decode(): (
                base64.b64decode(pair.get("value", "")),
                int(pair["version"]),
            )
            for pair in self._post("range", asked).get("kvs", [])
        }

    def put(self, key: str, value: bytes) -> None:
        self._post("put", {"key": _text(key.encode()), "value": _text(value)})

    def _post(self, call: str, asked: dict[str, str]) -> dict[str, list[dict[str, str]]]:
        with self._member.client() as client:
            answer = client.post(f"/v3/kv/{call}", json=asked)
        assert answer.is_success, answer.text
        found: dict[str, list[dict[str, str]]] = answer.json()
        return found


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture
def gateway(etcd: EtcdMembers) -> Gateway:
    return Gateway(etcd.members[0])


def test_all_calls_go_over_one_connection_of_http_2(journal: EtcdJournal, relay: Relay, prefix: str) -> None:
    journal.begin(JournalIdentity("cluster", "journal"))
    # Some are longer than a peer's initial window, and together they are longer than any window.
    entries = [Entry(number, os.urandom(200_000 if number % 3 else 9)) for number in range(1, 12)]
    for number, data in entries:
        journal.append(1, number, data)
    assert journal.campaign(A, 60)
    assert journal.renew()
    journal.stand(Standing(A, 11, 11, True), 60)
    assert journal.standings() == [Standing(A, 11, 11, True)]
    assert journal.read(0, 100) == entries
    journal.trim(11)
    journal.resign()
    assert (relay.connections, relay.begun) == (1, [b"PRI * HTTP/2.0\r\n"])


def test_etcd_shows_what_was_written(journal: EtcdJournal, gateway: Gateway, prefix: str) -> None:
    identity = JournalIdentity("cluster ü", "journal")
    journal.begin(identity)
    journal.append(1, 7, b"\x00\xff entry")
    long = os.urandom(2_500_000)
    journal.append(1, 8, long)
    assert journal.campaign(A, 60)
    pairs = gateway.pairs(prefix)
    epoch, times_put = pairs.pop(f"{prefix}/epoch")
    assert (epoch.split()[0], times_put) == (b"1", 1)
    assert pairs.pop(f"{prefix}/identity")[0] == '{"cluster":"cluster ü","journal":"journal"}'.encode()
    assert pairs.pop(f"{prefix}/leader")[0] == b'{"name":"a:9870","node_address":"a:9820"}'
    assert pairs.pop(f"{prefix}/entry/0000000000000007") == (b"W\x00\xff entry", 1)
    assert pairs.pop(f"{prefix}/entry/0000000000000008") == (b"P3", 1)
    assert b"".join(pairs[key][0] for key in sorted(pairs)) == long
    journal.resign()
    assert f"{prefix}/leader" not in gateway.pairs(prefix), "it goes with its lease"
    journal.trim(9)
    assert set(gateway.pairs(prefix)) == {f"{prefix}/epoch", f"{prefix}/identity"}


def test_journal_reads_what_others_wrote_to_etcd(journal: EtcdJournal, gateway: Gateway, prefix: str) -> None:
    entries = [Entry(number, os.urandom(1_000_000)) for number in range(1, 11)]
    for number, data in entries:
        gateway.put(f"{prefix}/entry/{number:016d}", b"W" + data)
    gateway.put(f"{prefix}/leader", b'{"name":"b:9870","node_address":"b:9820"}')
    gateway.put(f"{prefix}/epoch", b"77 somebody")
    assert journal.look(2, 3) == Look(entries[2:5], B, 77)
    # An answer ends with the entry that exceeds 8 MiB.
    assert journal.read(0, 100) == entries[:9]
    assert journal.ends() == (entries[0], entries[-1])
    assert not journal.campaign(A, 60)
    with pytest.raises(Fenced, match="the journal's is 77"):
        journal.append(1, 11, b"too late")
    gateway.put(f"{prefix}/entry/0000000000000011", b"W")
    assert journal.read(10, 10) == [Entry(11, b"")]


def is_answer(piece: bytes) -> bool:
    """Return whether a piece of HTTP/2 has a HEADERS frame, with which answers begin and end."""
    at = 0
    while at + _FRAME_HEAD_BYTES <= len(piece):
        if piece[at + 3] == _HEADERS:
            return True
        at += _FRAME_HEAD_BYTES + int.from_bytes(piece[at : at + 3], "big")
    return False


def test_entry_whose_answer_was_lost_is_there_once(
    journal: EtcdJournal, relay: Relay, gateway: Gateway, prefix: str
) -> None:
    relay.loses_answer = lambda piece: is_answer(piece) and relay.cuts == 0
    journal.append(1, 1, b"entry")
    assert relay.cuts == 1
    assert gateway.pairs(f"{prefix}/entry") == {f"{prefix}/entry/0000000000000001": (b"Wentry", 1)}
    with pytest.raises(Fenced, match="another's"):
        journal.append(1, 1, b"not the same")


@pytest.mark.parametrize("seed", range(often(3, 60)))
def test_calls_that_are_cut_anywhere_happen_once(
    seed: int, journal: EtcdJournal, relay: Relay, gateway: Gateway, prefix: str
) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    # The settings that a member sends first are pieces, too, so some calls never arrive.
    relay.loses_answer = lambda piece: chance.random() < 0.15
    expected: dict[str, bytes] = {}
    for number in range(1, 13):
        data = chance.randbytes(chance.choice((3, 3000, 70_000)))
        expected[f"{prefix}/entry/{number:016d}"] = b"W" + data
        until_known(lambda number=number, data=data: journal.append(1, number, data))
        if number == 6:
            # After an attempt with a lost answer, the journal waits until that attempt's lease has ended.
            wait_until(lambda: until_known(lambda: journal.campaign(A, 1)), "the journal leads")
        assert until_known(lambda number=number: journal.read(number - 1, 1)) == [Entry(number, data)]
    until_known(lambda: journal.stand(Standing(A, 12, 12), 60))
    until_known(lambda: journal.trim(6))
    expected = {key: value for key, value in expected.items() if key >= f"{prefix}/entry/{6:016d}"}
    assert until_known(lambda: journal.take(1, 2))
    relay.loses_answer = lambda piece: False
    assert gateway.pairs(f"{prefix}/entry") == {key: (value, 1) for key, value in expected.items()}
    assert gateway.pairs(f"{prefix}/epoch")[f"{prefix}/epoch"][1] == 2
    assert relay.cuts > 0


def until_known(call: Callable[[], T]) -> T:
    """Repeat a call until its answer is known, as users of a journal do."""
    found: list[T] = []

    def is_known() -> bool:
        with suppress(JournalUnsure):
            found.append(call())
        return bool(found)

    wait_until(is_known, "the call is answered")
    return found[0]


def test_connection_to_etcd_is_kept_alive_while_nothing_is_appended(journal: EtcdJournal, relay: Relay) -> None:
    journal.append(1, 1, b"entry")
    port = int(relay.endpoint.rpartition(":")[2])
    # Until the last bytes are acknowledged, another timer runs.
    wait_until(lambda: kept_alive_to(port) == [True], "the connection is kept alive")


def kept_alive_to(port: int) -> list[bool]:
    """Return for each connection to a port whether it has a keep-alive timer."""
    connections = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    established, keepalive = "01", "02"
    return [
        each[5].partition(":")[0] == keepalive
        for each in connections
        if each[2].endswith(f":{port:04X}") and each[3] == established
    ]
