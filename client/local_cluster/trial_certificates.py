"""A small CA in a directory, and certificates that it signs, for trials and clusters without their own CA.

    ca.pem, ca-key.pem            the CA; its key signs more certificates and belongs on no service's machine
    <host>.pem, <host>-key.pem    the certificate and key of a machine
    truststore.p12                the CA for Java

A service needs `ca.pem` and its own two files. A client needs `ca.pem` or `truststore.p12`.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from peacefs.protocol.errors import StartupError
from peacefs.protocol.limits import trial_authority_days, trial_certificate_days_default
from peacefs.runtime.tls import TlsFiles
from peacefs.runtime.tls_variables import TRUSTSTORE_PASSWORD

#: The names by which a machine reaches its own services.
_OWN_NAMES = ("localhost", "127.0.0.1", "::1")
# Clocks of other machines may be slightly behind.
_CLOCK_SLACK = timedelta(minutes=10)
_CA, _CA_KEY, _TRUSTSTORE = "ca.pem", "ca-key.pem", "truststore.p12"
_CURVE = ec.SECP256R1()
_SECRET, _PUBLIC = 0o600, 0o644


@dataclass(frozen=True)
class Described:
    """The description of a certificate."""

    subject: str
    issuer: str
    hosts: tuple[str, ...]
    is_ca: bool
    begins: datetime
    ends: datetime
    sha256: str

    def days_left(self, now: datetime) -> float:
        return (self.ends - now) / timedelta(days=1)


class TrialAuthority:
    """The CA in a directory, which `peacefs certificates` and `LocalCluster` use. Raises StartupError.

    The CA exists once its key does. `now` is replaced in tests only.
    """

    def __init__(self, directory: Path, now: datetime | None = None) -> None:
        """Create the directory and the CA if they do not exist."""
        self._now = now or datetime.now(UTC)
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if not (directory / _CA_KEY).exists():
                self._make()
        except OSError as error:
            raise StartupError(f"cannot make certificates in {directory}: {error.strerror}") from None
        try:
            key = serialization.load_pem_private_key((directory / _CA_KEY).read_bytes(), None)
            self._certificate = x509.load_pem_x509_certificate(self.ca.read_bytes())
        except (OSError, ValueError) as error:
            raise StartupError(f"the CA in {directory} cannot be used: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != self._certificate.public_key():
            raise StartupError(f"{directory / _CA_KEY} is not the key of {self.ca}")
        self._key = key

    @property
    def ca(self) -> Path:
        """The CA for --tls-ca and --ca-file."""
        return self.directory / _CA

    @property
    def truststore(self) -> Path:
        """The file for `ssl.client.truststore.location`, of type PKCS12."""
        return self.directory / _TRUSTSTORE

    @property
    def ends(self) -> datetime:
        return self._certificate.not_valid_after_utc

    def files_of(self, host: str) -> TlsFiles:
        """Return the paths of a machine's files, given its first name."""
        return TlsFiles(
            self.directory / f"{_file_name(host)}.pem", self.directory / f"{_file_name(host)}-key.pem", self.ca
        )

    def issue(self, hosts: Sequence[str], days: int = trial_certificate_days_default) -> TlsFiles:
        """Make a certificate for a machine with these names and addresses; replace an existing one.

        It never outlives its CA.
        """
        names = [_general_name(host) for host in dict.fromkeys((*hosts, *_OWN_NAMES))]
        ends = min(self._now + timedelta(days=days), self.ends)
        if ends <= self._now:
            raise StartupError(
                f"the CA {self.ca} has expired: make another in another directory, and give it to all services "
                "and clients"
            )
        key = ec.generate_private_key(_CURVE)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            self._builder(hosts[0], key, ends)
            .issuer_name(self._certificate.subject)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        files = self.files_of(hosts[0])
        assert files.certificate is not None
        assert files.key is not None
        try:
            # A service that reads the files in between finds that they do not match, and reads them again.
            _write(files.key, _pem_of_key(key), _SECRET)
            _write(files.certificate, certificate.public_bytes(serialization.Encoding.PEM), _PUBLIC)
        except OSError as error:
            raise StartupError(f"cannot make certificates in {self.directory}: {error.strerror}") from None
        return files

    def _make(self) -> None:
        key = ec.generate_private_key(_CURVE)
        name = f"peacefs trial CA {secrets.token_hex(4)}"
        builder = self._builder(name, key, self._now + timedelta(days=trial_authority_days))
        certificate = (
            builder.issuer_name(_name(name))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        entry = pkcs12.PKCS12Certificate(certificate, b"peacefs-ca")
        encryption = serialization.BestAvailableEncryption(TRUSTSTORE_PASSWORD.encode())
        _write(self.ca, certificate.public_bytes(serialization.Encoding.PEM), _PUBLIC)
        _write(self.truststore, pkcs12.serialize_java_truststore([entry], encryption), _PUBLIC)
        # Written last: the CA exists once its key does.
        _write(self.directory / _CA_KEY, _pem_of_key(key), _SECRET)

    def _builder(self, name: str, key: ec.EllipticCurvePrivateKey, ends: datetime) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _CLOCK_SLACK)
            .not_valid_after(ends)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )


def read_certificates(file: Path) -> list[Described]:
    """Return descriptions of the certificates in a PEM file. Raises StartupError."""
    try:
        found = x509.load_pem_x509_certificates(file.read_bytes())
    except OSError as error:
        raise StartupError(f"cannot read {file}: {error.strerror}") from None
    except ValueError:
        raise StartupError(f"{file} holds no certificate in PEM") from None
    return [_described(each) for each in found]


def _described(certificate: x509.Certificate) -> Described:
    hosts: list[str] = []
    is_ca = False
    for extension in certificate.extensions:
        value = extension.value
        if isinstance(value, x509.SubjectAlternativeName):
            hosts += value.get_values_for_type(x509.DNSName)
            hosts += map(str, value.get_values_for_type(x509.IPAddress))
        elif isinstance(value, x509.BasicConstraints):
            is_ca = value.ca
    return Described(
        certificate.subject.rfc4514_string(),
        certificate.issuer.rfc4514_string(),
        tuple(hosts),
        is_ca,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        certificate.fingerprint(hashes.SHA256()).hex(),
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host.encode("idna").decode())
    except (UnicodeError, ValueError):
        raise StartupError(f"{host!r} is neither a host's name nor its address") from None


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _file_name(host: str) -> str:
    """Return a name as a file name. The colons of IPv6 addresses would be inconvenient in options."""
    return host.replace(":", "-").replace("/", "-").replace("*", "any")


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file atomically; a secret file is never readable by others."""
    staged = path.with_name(path.name + ".new")
    staged.unlink(missing_ok=True)
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    staged.rename(path)
