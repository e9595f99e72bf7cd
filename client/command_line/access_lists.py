"""Executes `peacefs setfacl`, `getfacl`, `setfattr` and `getfattr`, with the output of Hadoop's commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peacefs.client.control.values import FileStatus
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import BadRequest, PathError
from peacefs.protocol.values.acl_entries import AclEntry, Scope, action, effective, parse_acl
from peacefs.protocol.values.attribute_values import Encoding, decode, encode

from .attributes import for_each
from .listing import print_line
from .session import Session

_STICKY = 0o1000


@dataclass(frozen=True)
class AclChange:
    """The requested change. Exactly one field is set. ACL specifications have Hadoop's syntax."""

    modify: str | None = None
    remove: str | None = None
    replace: str | None = None
    remove_default: bool = False
    remove_all: bool = False


def set_acl(session: Session, wanted: AclChange, texts: Sequence[str], *, recursive: bool) -> None:
    """Change the ACL of each path. Raises BadRequest or IllegalChange, before any change, if it is invalid."""
    spec = wanted.modify or wanted.remove or wanted.replace
    entries = parse_acl(spec, with_permissions=wanted.remove is None) if spec else []
    if not (entries or wanted.remove_default or wanted.remove_all):
        raise BadRequest("Missing <acl_spec> entry")
    for_each(session, texts, _acl_step(wanted, entries), recursive=recursive)


def _acl_step(
    wanted: AclChange, entries: Sequence[AclEntry]
) -> Callable[[PeaceFileSystem, FileStatus, bool], None]:
    def step(files: PeaceFileSystem, status: FileStatus, is_below: bool) -> None:
        # Files in a tree get no default entries, as with Hadoop's -R.
        fitting = [each for each in entries if each.scope is Scope.ACCESS or status.is_directory or not is_below]
        if wanted.remove_all:
            files.acls.remove(status.path)
        elif wanted.remove_default:
            files.acls.remove_default(status.path)
        elif not fitting:
            return
        elif wanted.modify is not None:
            files.acls.modify(status.path, fitting)
        elif wanted.remove is not None:
            files.acls.remove_entries(status.path, fitting)
        else:
            files.acls.set(status.path, fitting)

    return step


def show_acl(session: Session, texts: Sequence[str], *, recursive: bool) -> None:
    def step(files: PeaceFileSystem, status: FileStatus, _is_below: bool) -> None:
        acl = files.acls.get(status.path)
        print_line(f"# file: {status.path}")
        print_line(f"# owner: {status.owner}")
        print_line(f"# group: {status.group}")
        if status.permission & _STICKY:
            print_line(f"# flags: --{'t' if status.permission & 1 else 'T'}")
        for entry in acl:
            left = effective(entry, acl)
            print_line(str(entry), *([] if left == entry.permission else [f"#effective:{action(left)}"]))
        print_line("")

    for_each(session, texts, step, recursive=recursive, top_first=True)


def set_attribute(session: Session, name: str, value: str | None, texts: Sequence[str]) -> None:
    """Set an attribute of each path. Raises BadRequest for an invalid value, before any change."""
    try:
        raw = decode(value or "")
    except ValueError as error:
        raise BadRequest(f"the value of {name} cannot be read: {error}") from None
    for_each(session, texts, lambda files, status, _: files.xattrs.set(status.path, name, raw), recursive=False)


def remove_attribute(session: Session, name: str, texts: Sequence[str]) -> None:
    for_each(session, texts, lambda files, status, _: files.xattrs.remove(status.path, name), recursive=False)


def show_attributes(
    session: Session, name: str | None, encoding: str, texts: Sequence[str], *, recursive: bool
) -> None:
    """Show one attribute of each path, or all if `name` is None. Raises BadRequest for an unknown encoding."""
    try:
        wanted = Encoding(encoding.lower())
    except ValueError:
        raise BadRequest(f"Invalid/unsupported encoding option specified: {encoding}") from None

    def step(files: PeaceFileSystem, status: FileStatus, _is_below: bool) -> None:
        found = files.xattrs.get(status.path)
        if name is not None:
            if name not in found:
                raise PathError("At least one of the attributes provided was not found.")
            found = {name: found[name]}
        print_line(f"# file: {status.path}")
        for each, value in found.items():
            print_line(f"{each}={encode(value, wanted)}" if value else each)

    for_each(session, texts, step, recursive=recursive, top_first=True)
