"""A journal in an etcd with authentication: certificates, users and passwords."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from support.etcd import EtcdMember, EtcdMembers, etcd_members
from support.waiting import wait_until

from peacefs.client.local_cluster.trial_certificates import TrialAuthority
from peacefs.coordinator.journal.address import JournalOptions, open_journal
from peacefs.coordinator.journal.port import Entry, Journal, JournalIdentity, JournalRefused, JournalUnsure
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


def test_journal_logs_in_at_another_member_where_the_first_is_away(tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text(f"root:{_PASSWORD}\n")
    with etcd_members(tmp_path, 3) as etcd:
        add_root(etcd.members[1])
        etcd.members[0].kill()
        with closing(open_journal(JournalOptions(etcd.address, login=login))) as journal:
            wait_until(lambda: _answers(journal), "etcd has a leader, which lets the user in")
            assert journal.take(0, 1)


def _answers(journal: Journal) -> bool:
    try:
        return journal.begin(MINE) == MINE
    except JournalUnsure as unsure:
        print(unsure)
        return False


def test_journal_logs_in_again_when_its_token_is_over(tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text(f"root:{_PASSWORD}\n")
    with etcd_members(tmp_path) as plain:
        (member,) = plain.members
        add_root(member)
        with closing(open_journal(JournalOptions(plain.address, login=login))) as journal:
            assert journal.take(0, 1)
            journal.append(1, 1, b"entry")
            with member.client() as client:
                user = {"name": "root", "password": _PASSWORD}
                token = client.post("/v3/auth/authenticate", json=user).json()["token"]
                # Setting a user's password, even to the same one, invalidates the user's tokens in etcd.
                shown = {"Authorization": token}
                assert client.post("/v3/auth/user/changepw", json=user, headers=shown).is_success
                assert client.post("/v3/kv/range", json={"key": "YQ=="}, headers=shown).status_code == 401
            journal.append(1, 2, b"another")
            assert journal.read(0, 10) == [Entry(1, b"entry"), Entry(2, b"another")]


def test_journal_shows_certificate_and_user_to_an_etcd_that_wants_both(files: TlsFiles, tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text(f"root:{_PASSWORD}\n")
    with etcd_members(tmp_path, tls=files) as guarded:
        name = common_name(files.certificate)
        add_root(guarded.members[0], name)
        # With a password it acts as that user; without one, as the user in the certificate.
        for shown in (options(guarded, files, "/root")._replace(login=login), options(guarded, files, "/named/a")):
            with closing(open_journal(shown)) as journal:
                assert journal.begin(MINE) == MINE
                assert journal.take(0, 1)
                journal.append(1, 1, b"entry")
        with (
            closing(open_journal(options(guarded, files, "/elsewhere"))) as journal,
            pytest.raises(JournalRefused, match="permission denied"),
        ):
            journal.identity()


def common_name(certificate: Path) -> str:
    subject = x509.load_pem_x509_certificate(certificate.read_bytes()).subject
    (name,) = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)


def add_root(member: EtcdMember, named: str = "") -> None:
    """Enable authentication in a member with one user, and another one who may use the keys below `/named`."""
    below_named = {"permType": "READWRITE", "key": _text("/named/"), "range_end": _text("/named0")}
    calls: list[tuple[str, dict[str, object]]] = [
        ("user/add", {"name": "root", "password": _PASSWORD}),
        ("role/add", {"name": "root"}),
        ("user/grant", {"user": "root", "role": "root"}),
    ]
    if named:
        calls += [
            ("user/add", {"name": named, "password": "of no use here"}),
            ("role/add", {"name": "named"}),
            ("role/grant", {"name": "named", "perm": below_named}),
            ("user/grant", {"user": named, "role": "named"}),
        ]
    with member.client() as client:
        for path, asked in [*calls, ("enable", {})]:
            answer = client.post(f"/v3/auth/{path}", json=asked)
            assert answer.is_success, answer.text


def _text(key: str) -> str:
    return base64.b64encode(key.encode()).decode()
