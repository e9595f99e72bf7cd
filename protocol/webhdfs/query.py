"""Paths and query parameters of WebHDFS URLs: percent-decoding, and parameters of Hadoop's types. Pure.

Malformed input raises BadRequest, with the message that Hadoop's server sends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes

from peacefs.protocol.asgi import Scope
from peacefs.protocol.errors import BadRequest, ImpersonationRefused
from peacefs.protocol.values.account_names import check_account_name

T = TypeVar("T")

PREFIX: Final = "/webhdfs/v1"
#: HDFS's name for a caller that gives no name.
NOBODY: Final = "dr.who"

_ROOT: Final = b"/webhdfs"
_PREFIX: Final = PREFIX.encode()
_BELOW_PREFIX: Final = _PREFIX + b"/"
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_OCTAL = re.compile(r"[0-7]{1,6}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]*[$]?")
_INTEGER_MAX: Final = 2**63 - 1
_PERMISSION_MAX: Final = 0o1777
_SHOWN_CHARACTERS: Final = 40


def is_webhdfs(scope: Scope) -> bool:
    """Return whether the request is for WebHDFS, even if its path is wrong."""
    raw: bytes = scope["raw_path"]
    return raw == _ROOT or raw.startswith(b"/webhdfs/")


def path_of(scope: Scope) -> str:
    """Return the path in the file system, percent-decoded once. The namespace checks whether it is valid."""
    raw: bytes = scope["raw_path"]
    if raw != _PREFIX and not raw.startswith(_BELOW_PREFIX):
        raise BadRequest(f"there is nothing here: WebHDFS is at {PREFIX}/<path>?op=<operation>")
    return _decode(raw[len(_PREFIX) :], "path") or "/"


def invalid(name: str, why: str) -> BadRequest:
    """Return an error for a parameter with Hadoop's text, on which Hadoop's client depends."""
    return BadRequest(f'Invalid value for webhdfs parameter "{name}": {why}')


class RequestQuery:
    """The parameters of a request. Names are case-insensitive. If one is repeated, the first counts, as in HDFS.

    An empty value counts as absent. Every getter raises BadRequest if the value has the wrong type.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._values: dict[str, str] = {}
        if raw.isascii() and b"%" not in raw and b"+" not in raw:
            # Nothing is percent-encoded, as in most requests, so decoding would change nothing.
            for text in raw.decode().split("&"):
                key, _, said = text.partition("=")
                self._values.setdefault(key.lower(), said)
            return
        for field in raw.split(b"&"):
            name, _, value = field.replace(b"+", b" ").partition(b"=")
            self._values.setdefault(_decode(name, "the query").lower(), _decode(value, name.decode("latin-1")))

    def text(self, name: str) -> str | None:
        return self._values.get(name) or None

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise invalid(name, "it is missing")
        return value

    def names(self, name: str) -> frozenset[str]:
        """Return the items of a comma-separated list, as a set."""
        return frozenset(filter(None, self._values.get(name, "").split(",")))

    def sequence(self, name: str) -> tuple[str, ...]:
        """Return the items of a comma-separated list, in order."""
        return tuple(filter(None, self._values.get(name, "").split(",")))

    def every(self, name: str) -> tuple[str, ...]:
        """Return all values of a repeated parameter."""
        values = []
        for field in self._raw.split(b"&"):
            key, _, value = field.replace(b"+", b" ").partition(b"=")
            if _decode(key, "the query").lower() == name and value:
                values.append(_decode(value, name))
        return tuple(values)

    def boolean(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise invalid(name, f'Failed to parse "{value}" to Boolean.')
        return value.lower() == "true"

    def integer(self, name: str, default: int, minimum: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        if not _INTEGER.fullmatch(value) or abs(number := int(value)) > _INTEGER_MAX:
            raise invalid(name, f'Failed to parse "{value}" as a radix-10 long integer.')
        if number < minimum:
            raise invalid(name, f"Invalid parameter range: {name} = {number} < {minimum}")
        return number

    def permission(self, name: str, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        if not _OCTAL.fullmatch(value):
            raise invalid(name, f'Failed to parse "{value}" as a radix-8 short integer.')
        if (bits := int(value, 8)) > _PERMISSION_MAX:
            raise invalid(name, f"Invalid parameter range: {name} = {bits:o} > {_PERMISSION_MAX:o}")
        return bits

    def user(self) -> str:
        """Return the calling user. Raises ImpersonationRefused if `doas` is given."""
        if (other := self.text("doas")) is not None:
            raise ImpersonationRefused(f"User: {self.named_user()} is not allowed to impersonate {other}")
        return self.named_user()

    def named_user(self) -> str:
        """Return the user in `user.name`, ignoring `doas`. Raises BadRequest."""
        user = self.text("user.name")
        if user is None:
            return NOBODY
        if not _USER.fullmatch(user):
            raise invalid("user.name", f"{user[:_SHOWN_CHARACTERS]!r} does not match {_USER.pattern}")
        check_account_name("user", user)
        return user


def find_operation(method: str, query: RequestQuery, known: Mapping[str, Mapping[str, T]]) -> T:
    """Return the entry of `known` for the HTTP method and the operation in the query.

    Raises BadRequest if the operation is unknown or belongs to another method.
    """
    name = query.required("op").upper()
    if (found := known.get(method, {}).get(name)) is not None:
        return found
    elsewhere = [other for other, names in known.items() if name in names]
    if elsewhere:
        advice = f"{name} is asked with {elsewhere[0]}"
    else:
        advice = "there are " + ", ".join(name for names in known.values() for name in names)
    enum = f"org.apache.hadoop.hdfs.web.resources.{method.capitalize()}OpParam.Op"
    raise invalid("op", f"No enum constant {enum}.{name}; {advice}")


def _decode(raw: bytes, what: str) -> str:
    if b"%" in raw:
        if _BAD_ESCAPE.search(raw):
            raise invalid(what, "an escape is not % and two hexadecimal digits")
        raw = unquote_to_bytes(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise invalid(what, "it is not UTF-8") from None
