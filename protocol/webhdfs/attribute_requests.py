"""The requests about extended attributes; see `requests`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from peacefs.protocol.errors import PathError
from peacefs.protocol.values.attribute_values import Encoding, decode

from .query import RequestQuery, invalid
from .request import Reader, Request, plain

_FLAGS: Final = frozenset({"CREATE", "REPLACE"})


@dataclass(frozen=True, slots=True)
class GetAttributes(Request):
    """GETXATTRS; empty `names` means all attributes."""

    names: tuple[str, ...]
    encoding: Encoding

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> GetAttributes:
        wanted = query.text("encoding") or "text"
        try:
            encoding = Encoding(wanted.lower())
        except ValueError:
            constant = f"org.apache.hadoop.fs.XAttrCodec.{wanted.upper()}"
            raise invalid("encoding", f"No enum constant {constant}") from None
        return cls(path, user, query.every("xattr.name"), encoding)


@dataclass(frozen=True, slots=True)
class ListAttributes(Request):
    """LISTXATTRS"""


@dataclass(frozen=True, slots=True)
class SetAttribute(Request):
    """SETXATTR; `flags` are CREATE, REPLACE or both."""

    name: str
    value: bytes
    flags: frozenset[str]

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> SetAttribute:
        flags = frozenset(flag.strip().upper() for flag in query.names("flag"))
        if unknown := flags - _FLAGS:
            raise invalid("flag", f"No enum constant org.apache.hadoop.fs.XAttrSetFlag.{min(unknown)}")
        name = query.required("xattr.name")
        try:
            value = decode(query.text("xattr.value") or "")
        except ValueError as error:
            raise PathError(f"the value of {name} cannot be read: {error}") from None
        return cls(path, user, name, value, flags)


@dataclass(frozen=True, slots=True)
class RemoveAttribute(Request):
    name: str

    @classmethod
    def read(cls, path: str, user: str, query: RequestQuery) -> RemoveAttribute:
        return cls(path, user, query.required("xattr.name"))


ATTRIBUTE_OPERATIONS: Final[Mapping[str, Mapping[str, Reader]]] = {
    "GET": {"GETXATTRS": GetAttributes.read, "LISTXATTRS": plain(ListAttributes)},
    "PUT": {"SETXATTR": SetAttribute.read, "REMOVEXATTR": RemoveAttribute.read},
}
