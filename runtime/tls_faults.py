"""Explains TLS faults in one line: what is wrong and what to do.

Also makes the plain-text answer to connections without TLS on a TLS port.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from peacefs.protocol.errors import BadRequest, PeerRefused
from peacefs.protocol.frames import FIRST_BYTE, encode
from peacefs.protocol.messages import Failure
from peacefs.protocol.webhdfs.answers import error_answer

#: The first byte of every TLS handshake record; no frame and no HTTP method begins with it.
TLS_FIRST_BYTE: Final = b"\x16"
# From OpenSSL's x509_vfy.h.
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)
_INVALID_PURPOSE = 26
_OTHER_HOST = (62, 64)
_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
    "UNKNOWN_PROTOCOL",
)
SERVICE_OPTIONS: Final = "pass --tls-certificate, --tls-key and --tls-ca"
#: The other side's alerts about our certificate, or about its absence.
_ALERTS = {
    "TLSV1_ALERT_UNKNOWN_CA": "does not trust the CA of the certificate that it was shown: give both the same CA",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "was shown a certificate that has expired, by its clock: make a new one",
    "SSLV3_ALERT_BAD_CERTIFICATE": "refuses the certificate that it was shown: is it for the dialled host?",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "refuses the certificate that it was shown: does it trust the CA?",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "refuses the certificate that it was shown: it is not for this purpose",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": f"requires a certificate of its CA: {SERVICE_OPTIONS}",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "has no version or cipher of TLS in common, or requires a certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "speaks another version of TLS: at least 1.2 is wanted",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": f"shows no certificate, and only services come here: {SERVICE_OPTIONS}",
    "UNEXPECTED_EOF_WHILE_READING": "closed the connection during the TLS handshake",
    "UNSUPPORTED_PROTOCOL": "speaks another version of TLS: at least 1.2 is wanted",
    "NO_SHARED_CIPHER": "has no cipher of TLS in common with this side",
}


def explain(fault: ssl.SSLError, host: str = "") -> str:
    """Describe the peer's fault, or its complaint about us, as a sentence without the subject (the peer's
    name).
    """
    if isinstance(fault, ssl.SSLCertVerificationError):
        return _of_certificate(fault, host)
    reason = fault.reason or ""
    if reason in _NOT_TLS:
        return "does not speak TLS: use http:// (for Spark webhdfs://), or start it with --tls-certificate"
    if reason in _ALERTS:
        return _ALERTS[reason]
    if isinstance(fault, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return _ALERTS["UNEXPECTED_EOF_WHILE_READING"]
    return f"fails at TLS ({(reason or fault.strerror or str(fault)).lower().replace('_', ' ')})"


def is_about_certificates(fault: ssl.SSLError) -> bool:
    """Return whether a retry is useless until somebody has changed a file."""
    reason = fault.reason or ""
    return (
        isinstance(fault, ssl.SSLCertVerificationError)
        or reason in _NOT_TLS
        or "CERTIFICATE" in reason
        or "UNKNOWN_CA" in reason
    )


def _of_certificate(fault: ssl.SSLCertVerificationError, host: str) -> str:
    code = fault.verify_code
    if code == _EXPIRED:
        return "shows a certificate that has expired: its operator has to replace it"
    if code == _NOT_YET_VALID:
        return "shows a certificate that is not valid yet: are the clocks of both machines right?"
    if code in _UNKNOWN_ISSUER:
        return (
            "shows a certificate of a CA that is not trusted here: give that CA with --ca-file or PEACEFS_CA_FILE "
            "(a service: --tls-ca)"
        )
    if code in _OTHER_HOST:
        return f"shows a certificate that is not for {host}: dial a name that it is for"
    if code == _INVALID_PURPOSE:
        return "shows a certificate that is not for this purpose: it must be for servers and for clients"
    return f"shows a certificate that is refused: {fault.verify_message}"


def explain_own(fault: ssl.SSLError, certificate: Path | None, ca: Path, host: str | None) -> str:
    """Describe what is wrong with this side's own certificate."""
    code = fault.verify_code if isinstance(fault, ssl.SSLCertVerificationError) else 0
    if code == _EXPIRED:
        return f"the certificate {certificate}, or its CA, has expired: make one (`peacefs certificates create`)"
    if code == _NOT_YET_VALID:
        return f"the certificate {certificate} is not valid yet: is the clock of this machine right?"
    if code in _UNKNOWN_ISSUER:
        return f"the certificate {certificate} was not signed by a CA in {ca}"
    if code in _OTHER_HOST:
        return (
            f"the certificate {certificate} is not for {host}, as others reach this service: make one with "
            f"--host {host}, or say --advertise with a name that it is for"
        )
    if code == _INVALID_PURPOSE:
        return f"the certificate {certificate} must be for servers and for clients (extended key usage)"
    return f"the certificate {certificate} cannot be used: {fault.reason or fault.strerror}"


#: The refusal of a connection without TLS.
PLAIN_REFUSED: Final = (
    "this port speaks TLS: use https:// (for Spark swebhdfs://), and give a service --tls-certificate, --tls-key "
    "and --tls-ca"
)


def plain_refusal(first: bytes) -> bytes:
    """Return the plain-text answer to a connection that begins with `first` and is not TLS; may be empty."""
    if first[:1] == FIRST_BYTE:
        return encode(Failure(PeerRefused(PLAIN_REFUSED).code, PLAIN_REFUSED))
    if not first[:1].isalpha():
        return b""
    answer = error_answer(BadRequest(PLAIN_REFUSED), 400)
    head = [b"HTTP/1.1 400 Bad Request", b"connection: close"]
    head += [b"%s: %s" % pair for pair in answer.headers(with_type=False)]
    return b"\r\n".join((*head, b"", answer.body))
