"""A client's side of SASL's DIGEST-MD5, from the words of RFC 2831, section 2.1.2.1."""

from __future__ import annotations

import base64
import hashlib


def md5_hex(text: bytes) -> bytes:
    return hashlib.md5(text).hexdigest().encode()


def respond(asked: str, identifier: bytes, password: bytes, **changed: str) -> tuple[bytes, bytes]:
    """Return a client's response, and what the server has to prove then."""
    user, secret = base64.b64encode(identifier), base64.b64encode(password)
    said = {"nonce": asked, "cnonce": "c", "nc": "00000001", "qop": "auth", "realm": "default", "uri": "/default"}
    said |= changed
    a1 = hashlib.md5(b":".join((user, said["realm"].encode(), secret))).digest()
    a1 += f":{said['nonce']}:{said['cnonce']}".encode()

    def kd(a2: bytes) -> bytes:
        middle = f"{said['nonce']}:{said['nc']}:{said['cnonce']}:{said['qop']}".encode()
        return md5_hex(b":".join((md5_hex(a1), middle, md5_hex(a2))))

    response = kd(f"AUTHENTICATE:{said['uri']}".encode())
    text = (
        f'charset=utf-8,username="{user.decode()}",realm="{said["realm"]}",nonce="{said["nonce"]}",nc={said["nc"]},'
        f'cnonce="{said["cnonce"]}",digest-uri="{said["uri"]}",maxbuf=65536,response={response.decode()},'
        f"qop={said['qop']}"
    )
    return text.encode(), b"rspauth=" + kd(f":{said['uri']}".encode())
