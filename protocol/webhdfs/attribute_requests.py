"""The requests about extended attributes; see `requests`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from peacefs.protocol.values.attribute_values import Encoding

from .query import RequestQuery, invalid
from .request import Reader, Request


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


ATTRIBUTE_OPERATIONS: Final[Mapping[str, Mapping[str, Reader]]] = {"GET": {"GETXATTRS": GetAttributes.read}}
