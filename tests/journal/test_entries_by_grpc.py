"""Entries go to etcd by gRPC where it is spoken; where it is not, by way of its gateway, and each of them once."""

from __future__ import annotations

import itertools
import os
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from journal.relayed_member import Relay, relayed
from support.etcd import EtcdMembers, etcd_members
from support.waiting import wait_until

from peacefs.client.local_cluster.trial_certificates import TrialAuthority
from peacefs.coordinator.journal.etcd import EtcdJournal
from peacefs.coordinator.journal.etcd_gateway import EtcdAccess
from peacefs.coordinator.journal.etcd_grpc import EtcdGrpc
from peacefs.coordinator.journal.port import Entry, Fenced

_prefixes = itertools.count(1)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMembers]:
    with etcd_members(tmp_path_factory.mktemp("etcd")) as members:
        yield members


@pytest.fixture
def relay(etcd: EtcdMembers) -> Iterator[Relay]:
    with relayed(etcd.endpoints[0]) as relay:
        yield relay


@pytest.fixture
def journal(relay: Relay) -> Iterator[EtcdJournal]:
    with closing(EtcdJournal(EtcdAccess((relay.endpoint,)), f"/test-{next(_prefixes)}")) as journal:
        assert journal.take(0, 1)
        yield journal


def test_entries_reach_etcd_without_its_gateway(journal: EtcdJournal, relay: Relay) -> None:
    asked = relay.gateway_transactions
    # Some are longer than the room that a peer gives at first, and all of them together than any that it gives.
    entries = [Entry(number, os.urandom(200_000 if number % 3 else 9)) for number in range(1, 12)]
    for number, data in entries:
        journal.append(1, number, data)
    assert (relay.grpc_connections, relay.gateway_transactions) == (1, asked)
    assert [entry for at in range(11) for entry in journal.read(at, 1)] == entries
    assert relay.connections == 2, "one of gRPC, one of the gateway"


def test_entries_are_fenced_by_grpc_too(journal: EtcdJournal, relay: Relay) -> None:
    journal.append(1, 1, b"mine")
    with pytest.raises(Fenced, match="another's"):
        journal.append(1, 1, b"not the same")
    other = EtcdJournal(EtcdAccess((relay.endpoint,)), f"/test-{next(_prefixes) - 1}")
    with closing(other):
        assert other.take(1, 2)
    with pytest.raises(Fenced, match="epoch 1 is over"):
        journal.append(1, 2, b"too late")
    assert journal.read(0, 10) == [Entry(1, b"mine")]


def test_entries_go_by_the_gateway_where_grpc_is_not_spoken(journal: EtcdJournal, relay: Relay) -> None:
    relay.grpc_is_cut = True
    for number in range(1, 31):
        journal.append(1, number, b"entry")
    assert [entry.number for entry in journal.read(0, 100)] == list(range(1, 31))
    assert 1 <= relay.grpc_connections < 30, "it is not tried again for each"


def test_entry_whose_answer_by_grpc_was_lost_is_there_once(journal: EtcdJournal, relay: Relay) -> None:
    relay.answers_are_lost = True
    journal.append(1, 1, b"entry")
    assert relay.grpc_connections == 1
    journal.append(1, 2, b"another")
    assert journal.read(0, 10) == [Entry(1, b"entry"), Entry(2, b"another")]


def test_connections_to_etcd_are_kept_alive_while_nothing_is_appended(journal: EtcdJournal, relay: Relay) -> None:
    journal.append(1, 1, b"entry")
    port = int(relay.endpoint.rpartition(":")[2])
    # Until the last bytes are acknowledged another timer runs.
    wait_until(lambda: kept_alive_to(port) == [True, True], "one of gRPC and one of the gateway are kept alive")


def kept_alive_to(port: int) -> list[bool]:
    """Return of each connection to a port whether it has a timer that looks whether the other side is there."""
    connections = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    established, keepalive = "01", "02"
    return [
        each[5].partition(":")[0] == keepalive
        for each in connections
        if each[2].endswith(f":{port:04X}") and each[3] == established
    ]


def test_entries_by_grpc_over_tls_show_the_certificate(tmp_path: Path) -> None:
    files = TrialAuthority(tmp_path).issue(["127.0.0.1"])
    context = ssl.create_default_context(cafile=str(files.ca))
    context.set_alpn_protocols(["h2"])
    stranger = ssl.create_default_context(cafile=str(files.ca))
    with etcd_members(tmp_path, tls=files) as guarded:
        (endpoint,) = guarded.endpoints
        with guarded.members[0].client() as client:
            put = client.post("/v3/kv/put", json={"key": "ZXBvY2g=", "value": "MQ=="})
            assert put.is_success, put.text
        with closing(EtcdGrpc(stranger)) as grpc, pytest.raises((ssl.SSLError, ConnectionError)):
            grpc.put_if(endpoint, "", ("epoch", b"1"), "entry", b"data")
        context.load_cert_chain(files.certificate, files.key)
        with closing(EtcdGrpc(context)) as grpc:
            assert grpc.put_if(endpoint, "", ("epoch", b"1"), "entry", b"data")
            assert not grpc.put_if(endpoint, "", ("epoch", b"1"), "entry", b"data"), "it is there already"


def test_entries_by_grpc_show_the_token_of_a_user(tmp_path: Path) -> None:
    with etcd_members(tmp_path) as guarded:
        (endpoint,) = guarded.endpoints
        with guarded.members[0].client() as client:
            assert client.post("/v3/kv/put", json={"key": "ZXBvY2g=", "value": "MQ=="}).is_success
            for path, asked in (
                ("user/add", {"name": "root", "password": "secret"}),
                ("role/add", {"name": "root"}),
                ("user/grant", {"user": "root", "role": "root"}),
                ("enable", {}),
            ):
                assert client.post(f"/v3/auth/{path}", json=asked).is_success
            token = _token(client)
        for shown, is_let_in in (("", False), ("another", False), (token, True)):
            with closing(EtcdGrpc(None)) as grpc:
                assert grpc.put_if(endpoint, shown, ("epoch", b"1"), "entry", b"data") is is_let_in


def _token(client: httpx.Client) -> str:
    answer = client.post("/v3/auth/authenticate", json={"name": "root", "password": "secret"})
    assert answer.is_success, answer.text
    return str(answer.json()["token"])
