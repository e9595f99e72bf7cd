"""TLS of services and clients: SSL contexts from certificate files, which are reloaded when they change.

A service has a certificate, its key, and the CA that signed the certificates of all services. It shows its
certificate both as acceptor and as connector. A client has at most a CA. A connector verifies the certificate
chain and the host that it dialled.
"""

from __future__ import annotations

import hashlib
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

from peacefs.protocol.errors import StartupError
from peacefs.protocol.limits import tls_renewal_warning_days
from peacefs.runtime.counters import tls_days_left
from peacefs.runtime.secret import is_loopback
from peacefs.runtime.tls_variables import CA_FILE_VARIABLE, CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE

from .tls_faults import explain_own

# How often the files are checked. Changed files are reloaded if they are the same at two consecutive checks.
tls_files_look_s: Final = 2.0
tls_renewal_warning_pause_s: Final = 86_400.0


log = logging.getLogger("peacefs.tls")

# For TLS 1.2. All ciphers of TLS 1.3 are of this kind.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
_DAY_S = 86_400.0


@dataclass(frozen=True)
class TlsFiles:
    """PEM files. A client has no certificate and no key; without `ca` it trusts the CAs of the system."""

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None


def tls_files(certificate: Path | None, key: Path | None, ca: Path | None) -> TlsFiles | None:
    """Return the files of a service; None if none are given. Raises StartupError if only some are given."""
    given = {"--tls-certificate": certificate, "--tls-key": key, "--tls-ca": ca}
    missing = [option for option, file in given.items() if file is None]
    if len(missing) == len(given):
        return None
    if missing:
        raise StartupError(f"TLS needs a certificate, its key and the CA: {' and '.join(missing)} is missing")
    return TlsFiles(certificate, key, ca)


def require_tls_for(addresses: list[str], files: TlsFiles | None, *, no_tls: bool) -> None:
    """Check that a service reachable from other machines has TLS or `no_tls`. Raises StartupError."""
    if files is not None and no_tls:
        raise StartupError(
            f"--no-tls contradicts the TLS files that are given (by options, or by {CERTIFICATE_VARIABLE}, "
            f"{KEY_VARIABLE} and {CA_VARIABLE}): leave one out"
        )
    beyond = next((host for host in addresses if not is_loopback(host)), None)
    if beyond is not None and files is None and not no_tls:
        raise StartupError(
            f"{beyond} is reachable from other machines: pass --tls-certificate, --tls-key and --tls-ca "
            f"(`peacefs certificates create --host {beyond}` makes some for a trial), or say --no-tls"
        )


def require_plain_for(option: str, addresses: list[str], *, no_tls: bool) -> None:
    """Check that a port without TLS is on loopback, or that `no_tls` allows it beyond. Raises StartupError."""
    beyond = next((host for host in addresses if not is_loopback(host)), None)
    if beyond is not None and not no_tls:
        raise StartupError(
            f"{option} has no TLS, because the protocols of HDFS have none, and {beyond} is reachable from other "
            "machines: leave it out, or say --no-tls in place of the TLS files"
        )


def describe_tls(tls: TlsIdentity | None, addresses: list[str]) -> str:
    """Describe the use of TLS, for the line that a service logs at its start."""
    if tls is not None:
        return f"TLS, with a certificate for {tls.days_left:.0f} more days"
    if all(is_loopback(host) for host in addresses):
        return "no TLS: this machine only"
    return "no TLS, as --no-tls has it: whoever is on the network can read and change everything"


class ServerContext(ssl.SSLContext):
    """The SSL context of acceptors. `channel` is the SHA-256 of their certificate."""

    channel = b""


@dataclass(frozen=True)
class _CertificateGeneration:
    """The SSL contexts made from one state of the files."""

    connector: ssl.SSLContext
    acceptors: dict[ssl.VerifyMode, ServerContext]
    expires_s: float


class TlsIdentity:
    """The SSL contexts of one service or client. Servers and connection pools ask it for each connection.

    Changed files are loaded when they are complete and valid; otherwise the fault is logged and the old contexts
    stay in use. The certificate must be valid for `host`, by which others reach the service. Raises StartupError.
    Thread-safe.
    """

    def __init__(
        self,
        files: TlsFiles,
        host: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.files = files
        self._host = host
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._seen = self._seen_once = _state_of(files)
        self._generation = _load(files, host)
        self._looked_s = clock()
        self._warned_s: float | None = None
        self._stopping = threading.Event()
        self._watch: threading.Thread | None = None

    @classmethod
    def of_client(cls, ca_file: Path | None = None) -> TlsIdentity:
        """Return an identity that trusts `ca_file`, or else the file in PEACEFS_CA_FILE, or else the system's
        CAs.
        """
        named = os.environ.get(CA_FILE_VARIABLE)
        return cls(TlsFiles(ca=ca_file or (Path(named) if named else None)))

    # -- contexts ------------------------------------------------------------------------------------

    def connector_context(self) -> ssl.SSLContext:
        """Return the context for a new connection to a service; first reload changed files."""
        self.look()
        return self._generation.connector

    def server_context(self, wants: ssl.VerifyMode = ssl.CERT_NONE) -> ServerContext:
        """Return the context for an accepted connection. `wants`: whether the connector needs a certificate."""
        return self._generation.acceptors[wants]

    # -- time passes ---------------------------------------------------------------------------------

    @property
    def days_left(self) -> float:
        """Days until the certificate expires; negative afterwards."""
        return (self._generation.expires_s - self._wall_clock()) / _DAY_S

    def start_watch(self) -> None:
        """Start a thread that reloads changed files and warns before the certificate expires."""
        self.warn_of_expiry()
        tls_days_left.set_function(lambda: self.days_left)
        self._watch = threading.Thread(target=self._keep_watch, name="tls-files", daemon=True)
        self._watch.start()

    def stop_watch(self) -> None:
        """Stop the thread. May be called without `start_watch`."""
        self._stopping.set()
        if self._watch is not None:
            self._watch.join()

    def _keep_watch(self) -> None:
        while not self._stopping.wait(tls_files_look_s):
            self.look()
            self.warn_of_expiry()

    def look(self) -> None:
        """Reload files that have changed, if they have not changed again since the last check."""
        with self._lock:
            if self._clock() - self._looked_s < tls_files_look_s / 2:
                return
            self._looked_s = self._clock()
            state = _state_of(self.files)
            # While several files are replaced one by one, they do not fit together.
            is_settled, self._seen_once = state == self._seen_once, state
            if state != self._seen and is_settled:
                self._take(state)

    def reload(self) -> None:
        with self._lock:
            self._take(_state_of(self.files))

    def _take(self, state: tuple[object, ...]) -> None:
        self._seen = self._seen_once = state
        try:
            self._generation = _load(self.files, self._host)
        except StartupError as fault:
            log.error("the changed TLS files cannot be used, and the former ones stay in use: %s", fault.message)
            return
        log.info("the TLS files were reloaded: new connections use them (%.0f days left)", self.days_left)
        self._warned_s = None

    def warn_of_expiry(self) -> None:
        """Log that the certificate expires soon or has expired, at most once per day."""
        if self.days_left > tls_renewal_warning_days:
            return
        if self._warned_s is not None and self._clock() - self._warned_s < tls_renewal_warning_pause_s:
            return
        self._warned_s = self._clock()
        until = datetime.fromtimestamp(self._generation.expires_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        log.warning(
            "the certificate %s %s on %s: replace it and its key; no restart is needed",
            self.files.certificate,
            "expires" if self.days_left > 0 else "has expired",
            until,
        )


# -- loading -----------------------------------------------------------------------------------------


def _load(files: TlsFiles, host: str | None) -> _CertificateGeneration:
    """Make contexts from the files. Raises StartupError if they are unusable."""
    connector = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(connector)
    if files.ca is None:
        connector.load_default_certs()
    else:
        _trust(connector, files.ca)
    if files.certificate is None:
        return _CertificateGeneration(connector, {}, float("inf"))
    _show(connector, files)
    channel, expires_s = _facts_of(files.certificate)
    acceptors = {}
    for wants in (ssl.CERT_NONE, ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED):
        acceptor = acceptors[wants] = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        _harden(acceptor)
        _show(acceptor, files)
        acceptor.verify_mode = wants
        if wants is not ssl.CERT_NONE:
            assert files.ca is not None
            _trust(acceptor, files.ca)
            # Services keep their connections, so session tickets would never be used.
            acceptor.num_tickets = 0
        acceptor.channel = channel
    _rehearse(files, acceptors[ssl.CERT_REQUIRED], host)
    return _CertificateGeneration(connector, acceptors, expires_s)


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION


def _trust(context: ssl.SSLContext, ca: Path) -> None:
    try:
        context.load_verify_locations(cafile=ca)
    except ssl.SSLError:
        raise StartupError(f"the CA file {ca} holds no certificates in PEM") from None
    except OSError as error:
        raise StartupError(f"cannot read the CA file {ca}: {error.strerror}") from None


def _show(context: ssl.SSLContext, files: TlsFiles) -> None:
    assert files.certificate is not None
    assert files.key is not None
    for what, file in (("certificate", files.certificate), ("key", files.key)):
        try:
            file.open("rb").close()
        except OSError as error:
            raise StartupError(f"cannot read the TLS {what} {file}: {error.strerror}") from None

    def encrypted() -> NoReturn:
        raise StartupError(f"the TLS key {files.key} is encrypted; a service cannot ask for its password")

    try:
        context.load_cert_chain(files.certificate, files.key, encrypted)
    except ssl.SSLError as fault:
        if fault.reason == "KEY_VALUES_MISMATCH":
            raise StartupError(f"the TLS key {files.key} is not that of {files.certificate}") from None
        raise StartupError(
            f"{files.certificate} and {files.key} are no certificate and key in PEM "
            f"({fault.reason or fault.strerror})"
        ) from None


def _facts_of(certificate: Path) -> tuple[bytes, float]:
    """Return the SHA-256 of the first certificate in a file, and when it expires."""
    # Imported here because the import is slow and clients do not need it.
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    first = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
    return channel_of_certificate(first.public_bytes(Encoding.DER)), first.not_valid_after_utc.timestamp()


def channel_of_certificate(der: bytes | None) -> bytes:
    """Return the channel binding that both ends of a connection know (RFC 5929, tls-server-end-point)."""
    return hashlib.sha256(der).digest() if der else b""


def _rehearse(files: TlsFiles, acceptor: ssl.SSLContext, host: str | None) -> None:
    """Verify the certificate as peers will, in both roles, with a handshake in memory. Raises StartupError."""
    connector = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    connector.check_hostname = host is not None
    assert files.ca is not None
    _trust(connector, files.ca)
    _show(connector, files)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        connector.wrap_bio(back, there, server_hostname=host),
        acceptor.wrap_bio(there, back, server_side=True),
    ]
    try:
        for _round in range(4):
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLError as fault:
        raise StartupError(explain_own(fault, files.certificate, files.ca, host)) from None


def _state_of(files: TlsFiles) -> tuple[object, ...]:
    """Return a value that changes whenever a file is replaced or written to."""
    return tuple(_stat(file) for file in (files.certificate, files.key, files.ca) if file is not None)


def _stat(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
