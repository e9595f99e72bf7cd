"""Converts the parameters of WebHDFS operations on names to the fields of their messages."""

from __future__ import annotations

from typing import Any, Final

from peacefs.coordinator.namespace.attributes import SetFlag
from peacefs.protocol.errors import BadRequest, PathError
from peacefs.protocol.values.account_names import check_account_name
from peacefs.protocol.values.attribute_values import decode
from peacefs.protocol.webhdfs.query import RequestQuery, invalid
from peacefs.protocol.webhdfs.requests import unmasked

DIRECTORY_PERMISSION: Final = 0o755
#: HDFS's value for a quota that should not change.
_QUOTA_UNCHANGED: Final = 2**63 - 1
_ATTRIBUTE_FLAGS: Final = frozenset(flag.value for flag in SetFlag)


def directory(query: RequestQuery) -> dict[str, Any]:
    return {"permission": query.permission("permission", DIRECTORY_PERMISSION), "unmasked": unmasked(query)}


def checked_owners(owner: str | None, group: str | None) -> tuple[str | None, str | None]:
    """Return both names, None for an empty one. Raises BadRequest if both are empty or a name is impossible."""
    if not owner and not group:
        raise BadRequest("Both owner and group are empty.")
    for what, name in (("owner", owner), ("group", group)):
        if name:
            check_account_name(what, name)
    return owner or None, group or None


def owners(query: RequestQuery) -> dict[str, Any]:
    owner, group = checked_owners(query.text("owner"), query.text("group"))
    return {"owner": owner, "group": group}


def how_to_rename(query: RequestQuery) -> dict[str, Any]:
    """Read `renameoptions`. Without options, the request is HDFS's older rename.

    Stock clients use TO_TRASH to move files to the trash; it never replaces a file.
    """
    options = frozenset(option.strip().upper() for option in query.names("renameoptions"))
    if unknown := options - {"NONE", "OVERWRITE", "TO_TRASH"}:
        raise invalid("renameoptions", f"No enum constant org.apache.hadoop.fs.Options.Rename.{min(unknown)}")
    target = query.required("destination")
    return {"target": target, "overwrite": "OVERWRITE" in options, "is_legacy": not options}


def times(query: RequestQuery) -> dict[str, Any]:
    modified, accessed = (query.integer(name, -1, -1) for name in ("modificationtime", "accesstime"))
    return {"modified_ms": None if modified < 0 else modified, "accessed_ms": None if accessed < 0 else accessed}


def quotas(query: RequestQuery) -> dict[str, Any]:
    names, space = (query.integer(name, _QUOTA_UNCHANGED, -1) for name in ("namespacequota", "storagespacequota"))
    return {
        "names": None if names == _QUOTA_UNCHANGED else names,
        "space": None if space == _QUOTA_UNCHANGED else space,
    }


def attribute(query: RequestQuery) -> dict[str, Any]:
    flags = frozenset(flag.strip().upper() for flag in query.names("flag"))
    if unknown := flags - _ATTRIBUTE_FLAGS:
        raise invalid("flag", f"No enum constant org.apache.hadoop.fs.XAttrSetFlag.{min(unknown)}")
    name = query.required("xattr.name")
    try:
        value = decode(query.text("xattr.value") or "")
    except ValueError as error:
        raise PathError(f"the value of {name} cannot be read: {error}") from None
    return {"name": name, "value": value, "flags": sorted(flags)}


def length(query: RequestQuery) -> dict[str, Any]:
    query.required("newlength")
    return {"length": query.integer("newlength", 0, 0)}
