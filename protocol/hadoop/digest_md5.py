"""SASL's mechanism DIGEST-MD5 (RFC 2831) for a server, as Hadoop authenticates with delegation tokens. Pure.

The user name is a token's identifier and the password the token's password, both in base64. Only authentication is
offered: what follows is neither encrypted nor signed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from peacefs.protocol.errors import Unauthenticated

#: The name of Hadoop's servers. It is realm and host in the digest.
REALM: Final = "default"
response_bytes_max: Final = 4096

_DIRECTIVE = re.compile(r'\s*([A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^,"\s]*))\s*(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")
_REFUSED = "DIGEST-MD5: the client does not prove that it has the password of the token that it names"


@dataclass(frozen=True, slots=True)
class DigestChallenge:
    """What a client is asked to answer, once."""

    nonce: str

    @classmethod
    def new(cls) -> DigestChallenge:
        return cls(secrets.token_urlsafe(24))

    @property
    def text(self) -> bytes:
        return f'realm="{REALM}",nonce="{self.nonce}",qop="auth",charset=utf-8,algorithm=md5-sess'.encode()

    def verify(self, response: bytes, password_of: Callable[[bytes], bytes]) -> tuple[bytes, bytes]:
        """Return the token's identifier, and the proof that the server knows the password, too.

        `password_of` returns the password that belongs to an identifier. Raises Unauthenticated, as it does.
        """
        said = _directives(response)
        identifier = _identifier(said.get("username", ""))
        uri = said.get("digest-uri", "")
        if (
            said.get("nonce") != self.nonce
            or said.get("realm", "") != REALM
            or said.get("qop", "auth") != "auth"
            or said.get("nc") != "00000001"
            or not said.get("cnonce")
            or uri.rpartition("/")[2] != REALM
            or "authzid" in said
        ):
            raise Unauthenticated(_REFUSED)
        secret = self._secret(said, base64.b64encode(password_of(identifier)))
        expected = _response(secret, said, f"AUTHENTICATE:{uri}")
        if not hmac.compare_digest(expected.encode(), said.get("response", "").encode()):
            raise Unauthenticated(_REFUSED)
        return identifier, b"rspauth=" + _response(secret, said, f":{uri}").encode()

    def _secret(self, said: dict[str, str], password: bytes) -> str:
        named = f"{said['username']}:{REALM}:".encode() + password
        session = _md5(named) + f":{said['nonce']}:{said['cnonce']}".encode()
        return _md5(session).hex()


def _response(secret: str, said: dict[str, str], what: str) -> str:
    proved = f"{secret}:{said['nonce']}:{said['nc']}:{said['cnonce']}:auth:{_md5(what.encode()).hex()}"
    return _md5(proved.encode()).hex()


def _md5(raw: bytes) -> bytes:
    # The mechanism has no other hash. It proves the knowledge of a random password of 32 bytes.
    return hashlib.md5(raw, usedforsecurity=False).digest()


def _directives(response: bytes) -> dict[str, str]:
    if len(response) > response_bytes_max:
        raise Unauthenticated(f"DIGEST-MD5: a response of {len(response)} bytes is over {response_bytes_max}")
    try:
        text = response.decode()
    except UnicodeDecodeError:
        raise Unauthenticated("DIGEST-MD5: the response cannot be read") from None
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _DIRECTIVE.match(text, at)
        if match is None or match[1].lower() in found:
            raise Unauthenticated("DIGEST-MD5: the response cannot be read")
        found[match[1].lower()] = match[3] if match[2] is None else _ESCAPED.sub(r"\1", match[2])
        at = match.end()
    return found


def _identifier(name: str) -> bytes:
    try:
        return base64.b64decode(name, validate=True)
    except (binascii.Error, ValueError):
        raise Unauthenticated("DIGEST-MD5: the user name is no identifier of a token") from None
