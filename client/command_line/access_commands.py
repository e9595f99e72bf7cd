"""Declares the commands for ACLs and extended attributes, with the options of `hdfs dfs`."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import DEFAULT_COORDINATOR, Coordinator, Paths, open_session

_Recursive = Annotated[bool, typer.Option("-R", help="Include everything below directories.")]
_Spec = (
    "user:NAME:rwx,group:NAME:r-x,mask::r--,other::---; `default:` before one is for what is made in a directory"
)


def setfacl(
    paths: Paths,
    modify: Annotated[
        str | None,
        typer.Option("-m", metavar="SPEC", help=f"Add or replace entries: {_Spec}.", show_default=False),
    ] = None,
    remove: Annotated[
        str | None,
        typer.Option(
            "-x", metavar="SPEC", help="Remove entries: user:NAME,default:group:NAME.", show_default=False
        ),
    ] = None,
    replace: Annotated[
        str | None, typer.Option("--set", metavar="SPEC", help="Replace the whole ACL.", show_default=False)
    ] = None,
    remove_all: Annotated[bool, typer.Option("-b", help="Remove all entries beyond the permission.")] = False,
    remove_default: Annotated[bool, typer.Option("-k", help="Remove a directory's default ACL.")] = False,
    recursive: _Recursive = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Change access control lists."""
    from .access_lists import AclChange, set_acl

    if sum([modify is not None, remove is not None, replace is not None, remove_all, remove_default]) != 1:
        raise typer.BadParameter("give one of -m, -x, --set, -b and -k")
    change = AclChange(modify, remove, replace, remove_default, remove_all)
    with open_session("setfacl", coordinator) as session:
        set_acl(session, change, paths, recursive=recursive)


def getfacl(paths: Paths, recursive: _Recursive = False, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Show access control lists."""
    from .access_lists import show_acl

    with open_session("getfacl", coordinator) as session:
        show_acl(session, paths, recursive=recursive)


def setfattr(
    paths: Paths,
    name: Annotated[
        str | None, typer.Option("-n", metavar="NAME", help="Name, such as user.colour.", show_default=False)
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            "-v", metavar="VALUE", help="Value: text, 0x and hex digits, or 0s and base64.", show_default=False
        ),
    ] = None,
    remove: Annotated[
        str | None, typer.Option("-x", metavar="NAME", help="Remove this attribute.", show_default=False)
    ] = None,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Change an extended attribute."""
    from .access_lists import remove_attribute, set_attribute

    if (name is None) == (remove is None):
        raise typer.BadParameter("give one of -n and -x")
    if remove is not None and value is not None:
        raise typer.BadParameter("-v goes with -n only")
    with open_session("setfattr", coordinator) as session:
        if name is not None:
            set_attribute(session, name, value, paths)
        elif remove is not None:
            remove_attribute(session, remove, paths)


def getfattr(
    paths: Paths,
    name: Annotated[
        str | None, typer.Option("-n", metavar="NAME", help="Show only this attribute.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("-d", help="Show all attributes.")] = False,
    encoding: Annotated[
        str, typer.Option("-e", metavar="ENCODING", help="Encoding of values: text, hex or base64.")
    ] = "text",
    recursive: _Recursive = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Show extended attributes."""
    from .access_lists import show_attributes

    if (name is not None) == every:
        raise typer.BadParameter("give one of -n and -d")
    with open_session("getfattr", coordinator) as session:
        show_attributes(session, name, encoding, paths, recursive=recursive)
