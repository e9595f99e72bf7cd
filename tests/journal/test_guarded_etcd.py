"""A journal in an etcd that asks who comes: certificates, users and passwords."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.etcd import EtcdMember, EtcdMembers, etcd_members

from peacefs.client.local_cluster.trial_certificates import TrialAuthority
from peacefs.coordinator.journal.address import JournalOptions, open_journal
from peacefs.coordinator.journal.port import Entry, JournalIdentity, JournalRefused, JournalUnsure
from peacefs.protocol.errors import StartupError
from peacefs.runtime.tls import TlsFiles

MINE = JournalIdentity("cluster-1", "journal-1")
_PASSWORD = "a password of etcd's"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TrialAuthority(tmp_path_factory.mktemp("certificates")).issue(["127.0.0.1"])


@pytest.fixture(scope="module")
def etcd(files: TlsFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMembers]:
    with etcd_members(tmp_path_factory.mktemp("etcd"), tls=files) as members:
        yield members


def options(etcd: EtcdMembers, files: TlsFiles, prefix: str) -> JournalOptions:
    address = f"etcds://{','.join(etcd.endpoints)}{prefix}"
    return JournalOptions(address, files.ca, files.certificate, files.key)


def test_journal_over_tls_shows_its_certificate(etcd: EtcdMembers, files: TlsFiles) -> None:
    with closing(open_journal(options(etcd, files, "/shown"))) as journal:
        assert journal.begin(MINE) == MINE
        assert journal.take(0, 1)
        journal.append(1, 1, b"entry")
        assert journal.read(0, 10) == [Entry(1, b"entry")]


def test_journal_of_another_ca_is_not_spoken_to(etcd: EtcdMembers, files: TlsFiles, tmp_path: Path) -> None:
    other = TrialAuthority(tmp_path).issue(["127.0.0.1"])
    for changed, said in (
        ({"ca": other.ca}, "certificate verify failed"),
        ({"certificate": None, "key": None}, "did not answer"),
    ):
        with (
            closing(open_journal(options(etcd, files, "/other")._replace(**changed))) as journal,
            pytest.raises(JournalUnsure, match=said),
        ):
            journal.identity()
    with pytest.raises(StartupError, match="certificates for the journal cannot be read"):
        open_journal(options(etcd, files, "/other")._replace(ca=tmp_path / "nowhere.pem"))


def test_journal_logs_in_where_etcd_has_users(tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text(f"root:{_PASSWORD}\n")
    with etcd_members(tmp_path) as plain:
        (member,) = plain.members
        add_root(member)
        with closing(open_journal(JournalOptions(plain.address, login=login))) as journal:
            assert journal.begin(MINE) == MINE
        with (
            closing(open_journal(JournalOptions(plain.address))) as journal,
            pytest.raises(JournalRefused, match="user name is empty"),
        ):
            journal.identity()
        login.write_text("root:another\n")
        with (
            closing(open_journal(JournalOptions(plain.address, login=login))) as journal,
            pytest.raises(JournalRefused, match=r"refuses user 'root'"),
        ):
            journal.identity()


def test_journal_says_that_etcd_takes_users_or_named_certificates(files: TlsFiles, tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text(f"root:{_PASSWORD}\n")
    with etcd_members(tmp_path, tls=files) as guarded:
        add_root(guarded.members[0])
        with (
            closing(open_journal(options(guarded, files, "/both")._replace(login=login))) as journal,
            pytest.raises(JournalRefused, match="CommonName of client"),
        ):
            journal.identity()


def add_root(member: EtcdMember) -> None:
    """Have a member ask for users, of whom it knows one."""
    with member.client() as client:
        for path, asked in (
            ("user/add", {"name": "root", "password": _PASSWORD}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("enable", {}),
        ):
            answer = client.post(f"/v3/auth/{path}", json=asked)
            assert answer.is_success, answer.text
