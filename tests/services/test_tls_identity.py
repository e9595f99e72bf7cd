"""Certificate files: faults are reported in one line, and new certificates need no restart."""

from __future__ import annotations

import logging
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from peacefs.client.local_cluster.trial_certificates import TrialAuthority, read_certificates
from peacefs.protocol.errors import StartupError
from peacefs.runtime.tls import TlsFiles, TlsIdentity, require_tls_for, tls_files

HOST = "127.0.0.1"
NOW = datetime.now(UTC)


@pytest.fixture
def authority(tmp_path: Path) -> TrialAuthority:
    return TrialAuthority(tmp_path / "ca")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def pass_looks(self, identity: TlsIdentity, looks: int = 2) -> None:
        for _ in range(looks):
            self.now_s += 10.0
            identity.look()


class TestBadFiles:
    def complaint(self, files: TlsFiles, host: str | None = HOST) -> str:
        with pytest.raises(StartupError) as refusal:
            TlsIdentity(files, host)
        assert "\n" not in refusal.value.message
        return refusal.value.message

    def test_missing(self, authority: TrialAuthority, tmp_path: Path) -> None:
        good = authority.issue([HOST])
        assert good.key is not None
        for files, what in (
            (TlsFiles(tmp_path / "no", good.key, good.ca), "TLS certificate"),
            (TlsFiles(good.certificate, tmp_path / "no", good.ca), "TLS key"),
            (TlsFiles(good.certificate, good.key, tmp_path / "no"), "CA file"),
        ):
            assert self.complaint(files) == f"cannot read the {what} {tmp_path / 'no'}: No such file or directory"

    def test_no_certificate_at_all(self, authority: TrialAuthority, tmp_path: Path) -> None:
        good = authority.issue([HOST])
        (tmp_path / "notes").write_text("these are my notes")
        said = self.complaint(TlsFiles(tmp_path / "notes", good.key, good.ca))
        assert "no certificate and key in PEM" in said
        assert "holds no certificates" in self.complaint(TlsFiles(good.certificate, good.key, tmp_path / "notes"))

    def test_key_of_another(self, authority: TrialAuthority) -> None:
        one, other = authority.issue([HOST]), authority.issue(["other"])
        said = self.complaint(TlsFiles(one.certificate, other.key, one.ca))
        assert said == f"the TLS key {other.key} is not that of {one.certificate}"

    def test_expired_and_not_yet_valid(self, tmp_path: Path) -> None:
        for days, word in ((-100, "has expired"), (2, "is not valid yet")):
            authority = TrialAuthority(tmp_path / word.replace(" ", "-"), NOW + timedelta(days=days))
            assert word in self.complaint(authority.issue([HOST], days=50))

    def test_other_authority(self, authority: TrialAuthority, tmp_path: Path) -> None:
        good = authority.issue([HOST])
        stranger = TrialAuthority(tmp_path / "stranger")
        said = self.complaint(TlsFiles(good.certificate, good.key, stranger.ca))
        assert said == f"the certificate {good.certificate} was not signed by a CA in {stranger.ca}"

    @pytest.mark.parametrize("host", ["10.1.2.3", "node7.example"])
    def test_other_host(self, authority: TrialAuthority, host: str) -> None:
        said = self.complaint(authority.issue(["node8.example", "10.1.2.4"]), host)
        assert f"is not for {host}" in said and f"--host {host}" in said and "--advertise" in said

    def test_encrypted_key(self, authority: TrialAuthority, tmp_path: Path) -> None:
        from cryptography.hazmat.primitives import serialization

        good = authority.issue([HOST])
        assert good.key is not None
        key = serialization.load_pem_private_key(good.key.read_bytes(), None)
        (tmp_path / "locked").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"pass"),
            )
        )
        assert "is encrypted" in self.complaint(TlsFiles(good.certificate, tmp_path / "locked", good.ca))

    def test_some_without_the_others(self, tmp_path: Path) -> None:
        assert tls_files(None, None, None) is None
        with pytest.raises(StartupError, match="--tls-key and --tls-ca is missing"):
            tls_files(tmp_path, None, None)


class TestRule:
    def test_loopback_needs_none(self) -> None:
        for host in ("127.0.0.1", "::1", "localhost", "127.8.9.1"):
            require_tls_for([host], None, no_tls=False)

    @pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::", "node-1"])
    def test_any_other_address_needs_tls_or_a_word(self, host: str, tmp_path: Path) -> None:
        with pytest.raises(StartupError, match=rf"{host} is reachable from other machines: .*--no-tls"):
            require_tls_for(["127.0.0.1", host], None, no_tls=False)
        require_tls_for(["127.0.0.1", host], None, no_tls=True)
        require_tls_for([host], TlsFiles(tmp_path, tmp_path, tmp_path), no_tls=False)

    def test_both_contradict_each_other(self, tmp_path: Path) -> None:
        with pytest.raises(StartupError, match="contradicts"):
            require_tls_for(["127.0.0.1"], TlsFiles(tmp_path, tmp_path, tmp_path), no_tls=True)


class TestReplacedFiles:
    def test_are_taken_when_they_have_settled(self, authority: TrialAuthority) -> None:
        clock = Clock()
        identity = TlsIdentity(authority.issue([HOST]), HOST, clock=clock)
        first = identity.server_context().channel
        authority.issue([HOST])
        clock.pass_looks(identity, 1)
        assert identity.server_context().channel == first
        clock.pass_looks(identity, 1)
        second = identity.server_context().channel
        assert second != first
        clock.pass_looks(identity, 5)
        assert identity.server_context().channel == second

    def test_are_left_when_they_are_broken_and_taken_when_they_are_mended(
        self, authority: TrialAuthority, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = Clock()
        files = authority.issue([HOST])
        identity = TlsIdentity(files, HOST, clock=clock)
        first, connector = identity.server_context().channel, identity.connector_context()
        assert files.certificate is not None
        files.certificate.write_text("half a cert")
        clock.pass_looks(identity, 4)
        assert identity.server_context().channel == first
        assert identity.connector_context() is connector
        assert caplog.text.count("the former ones stay in use") == 1
        authority.issue([HOST])
        clock.pass_looks(identity)
        assert identity.server_context().channel != first

    def test_are_left_when_they_have_expired(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        clock = Clock()
        identity = TlsIdentity(TrialAuthority(tmp_path / "ca").issue([HOST]), HOST, clock=clock)
        first = identity.server_context().channel
        TrialAuthority(tmp_path / "ca", NOW - timedelta(days=10)).issue([HOST], days=1)
        clock.pass_looks(identity)
        assert identity.server_context().channel == first
        assert "has expired" in caplog.text

    def test_new_authority_is_trusted_by_clients_that_run(self, tmp_path: Path, authority: TrialAuthority) -> None:
        clock = Clock()
        bundle = tmp_path / "bundle.pem"
        bundle.write_bytes(authority.ca.read_bytes())
        client = TlsIdentity(TlsFiles(ca=bundle), clock=clock)
        assert len(client.connector_context().get_ca_certs()) == 1
        bundle.write_bytes(authority.ca.read_bytes() + TrialAuthority(tmp_path / "next").ca.read_bytes())
        clock.pass_looks(client)
        assert len(client.connector_context().get_ca_certs()) == 2


def test_expiry_is_warned_of_ahead_and_once_a_day(
    authority: TrialAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    clock, wall_s = Clock(), NOW.timestamp()
    identity = TlsIdentity(authority.issue([HOST], days=30), HOST, clock=clock, wall_clock=lambda: wall_s)
    assert identity.days_left == pytest.approx(30, abs=0.1)
    identity.warn_of_expiry()
    assert "expire" not in caplog.text
    wall_s += 20 * 86_400
    for _ in range(3):
        identity.warn_of_expiry()
    assert caplog.text.count("expires on") == 1
    wall_s += 11 * 86_400
    clock.now_s += 2 * 86_400
    identity.warn_of_expiry()
    assert caplog.text.count("has expired on") == 1
    assert identity.days_left < 0
    assert all(record.levelno == logging.WARNING for record in caplog.records)


class TestTrialAuthority:
    def test_keys_are_their_owners_alone(self, authority: TrialAuthority) -> None:
        files = authority.issue(["node1", "10.0.0.1"])
        assert files.key is not None
        for secret in (files.key, authority.directory / "ca-key.pem"):
            assert secret.stat().st_mode & 0o777 == 0o600
        assert sorted(path.name for path in authority.directory.iterdir()) == [
            "ca-key.pem",
            "ca.pem",
            "node1-key.pem",
            "node1.pem",
            "truststore.p12",
        ]

    def test_is_found_again_and_signs_more(self, authority: TrialAuthority) -> None:
        ca = authority.ca.read_bytes()
        again = TrialAuthority(authority.directory)
        assert again.ca.read_bytes() == ca
        TlsIdentity(again.issue(["node2"]), "node2")

    def test_certificate_says_its_hosts_and_ends_with_its_authority(self, tmp_path: Path) -> None:
        authority = TrialAuthority(tmp_path / "ca", NOW - timedelta(days=360))
        late = TrialAuthority(tmp_path / "ca", NOW)
        files = late.issue(["node1", "10.0.0.1", "fe80::1"], days=90)
        assert files.certificate is not None
        (described,) = read_certificates(files.certificate)
        assert described.hosts == ("node1", "localhost", "10.0.0.1", "fe80::1", "127.0.0.1", "::1")
        assert described.ends == authority.ends < NOW + timedelta(days=6)
        assert not described.is_ca

    def test_expired_authority_signs_nothing(self, tmp_path: Path) -> None:
        TrialAuthority(tmp_path / "ca", NOW - timedelta(days=400))
        with pytest.raises(StartupError, match="has expired: make another in another directory"):
            TrialAuthority(tmp_path / "ca").issue([HOST])

    def test_bad_name_is_refused(self, authority: TrialAuthority) -> None:
        with pytest.raises(StartupError, match="neither a host's name nor its address"):
            authority.issue(["a" * 70 + ".example"])

    def test_contexts_take_no_old_version_and_no_weak_cipher(self, authority: TrialAuthority) -> None:
        identity = TlsIdentity(authority.issue([HOST]), HOST)
        for context in (identity.connector_context(), identity.server_context(ssl.CERT_REQUIRED)):
            assert context.minimum_version == ssl.TLSVersion.TLSv1_2
            names = [cipher["name"] for cipher in context.get_ciphers()]
            assert all("GCM" in name or "CHACHA20" in name for name in names), names
        assert identity.connector_context().check_hostname
        assert identity.connector_context().verify_mode == ssl.CERT_REQUIRED
        assert identity.server_context(ssl.CERT_REQUIRED).verify_mode == ssl.CERT_REQUIRED
