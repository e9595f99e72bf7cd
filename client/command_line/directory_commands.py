"""Declares the commands for whole directories: `prepare`, `count`, `du`, `quota` and `snapshot`."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import DEFAULT_COORDINATOR, Coordinator, Paths, open_session

quotas = typer.Typer(
    help="Limit names and bytes below a directory (superusers).",
    no_args_is_help=True,
    rich_markup_mode=None,
)
snapshots = typer.Typer(help="Keep and compare snapshots of directories.", no_args_is_help=True)

_Directory = Annotated[str, typer.Argument(metavar="DIR", show_default=False)]
_Snapshot = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


def prepare(
    users: Annotated[
        list[str] | None,
        typer.Argument(metavar="[USER]...", show_default=False, help="Users for whom to make a home directory."),
    ] = None,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Create /tmp, /checkpoints and homes (superusers only).

    Prints what it creates. Existing directories stay unchanged. Everyone may create directories in /tmp and
    /checkpoints.
    """
    from peacefs.client.shared_directories import make_shared_directories

    from .listing import print_line

    with open_session("prepare", coordinator) as session:
        for path in make_shared_directories(session.place("/").files, users or ()):
            print_line(path)


def count(
    paths: Paths,
    quotas: Annotated[
        bool, typer.Option("--quotas", "-q", help="Show quotas, and what is left of them, first.")
    ] = False,
    human: Annotated[bool, typer.Option("--human", "-h", help="Show sizes such as 64 M.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Count directories, files and bytes.

    Columns are those of `hdfs dfs -count`: with -q, the quota of names and its rest, then the quota of bytes and
    its rest; then directories, files, bytes, path.
    """
    from .quotas import CountStyle, count_trees

    with open_session("count", coordinator) as session:
        count_trees(session, paths, CountStyle(quotas, human, as_json))


def du(
    paths: Paths,
    summary: Annotated[
        bool, typer.Option("--summary", "-s", help="Show one line for each PATH as a whole.")
    ] = False,
    human: Annotated[bool, typer.Option("--human", "-h", help="Show sizes such as 64 M.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Show the size of files, without and with replicas.

    One line for each entry of a directory, unless --summary is given.
    """
    from .usage import UsageStyle, show_usage

    with open_session("du", coordinator) as session:
        show_usage(session, paths, UsageStyle(summary, human, as_json))


def df(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="[default: /]", show_default=False)
    ] = None,
    human: Annotated[bool, typer.Option("--human", "-h", help="Show sizes such as 64 M.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Show the total, used and free space of the cluster.

    Counts bytes on disks: a file uses its length times its number of replicas.
    """
    from .usage import show_space

    with open_session("df", coordinator) as session:
        show_space(session, paths or ["/"], human=human, as_json=as_json)


@quotas.command("set")
def quota_set(
    paths: Paths,
    names: Annotated[
        int | None,
        typer.Option(
            "--names",
            metavar="N",
            min=1,
            help="Limit on the number of files and directories, including DIR itself.",
        ),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option("--space", metavar="BYTES", help="Limit on the bytes of all replicas; 10g is 10 GiB."),
    ] = None,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Set the quotas of directories."""
    from .quotas import parse_size, set_quotas

    if names is None and space is None:
        raise typer.BadParameter("give --names, --space or both")
    with open_session("quota set", coordinator) as session:
        set_quotas(session, paths, names, None if space is None else parse_size(space))


@quotas.command("clear")
def quota_clear(
    paths: Paths,
    names: Annotated[
        bool, typer.Option("--names", help="Remove only the quota of files and directories.")
    ] = False,
    space: Annotated[bool, typer.Option("--space", help="Remove only the quota of bytes.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Remove quotas: both, unless one is named."""
    from .quotas import NO_LIMIT, set_quotas

    both = names == space
    with open_session("quota clear", coordinator) as session:
        set_quotas(session, paths, NO_LIMIT if names or both else None, NO_LIMIT if space or both else None)


@snapshots.command("allow")
def snapshot_allow(directory: _Directory, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Allow snapshots of a directory (superusers only)."""
    with open_session("snapshot allow", coordinator) as session, session.errors.about(directory):
        place = session.place(directory)
        place.files.snapshots.allow(place.path)


@snapshots.command("disallow")
def snapshot_disallow(directory: _Directory, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Forbid snapshots of a directory that has none (superusers only)."""
    with open_session("snapshot disallow", coordinator) as session, session.errors.about(directory):
        place = session.place(directory)
        place.files.snapshots.disallow(place.path)


@snapshots.command("create")
def snapshot_create(
    directory: _Directory,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", show_default=False)] = None,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Take a snapshot. Read it below DIR/.snapshot/NAME."""
    from .snapshots import create

    with open_session("snapshot create", coordinator) as session:
        create(session, directory, name)


@snapshots.command("ls")
def snapshot_ls(directory: _Directory, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """List the snapshots of a directory."""
    from .snapshots import show_names

    with open_session("snapshot ls", coordinator) as session:
        show_names(session, directory)


@snapshots.command("diff")
def snapshot_diff(
    directory: _Directory,
    older: Annotated[str, typer.Argument(metavar="FROM", show_default=False)],
    newer: Annotated[str, typer.Argument(metavar="[TO]", show_default=False)] = ".",
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Show the differences between two snapshots. "." means the present directory."""
    from .snapshots import show_differences

    with open_session("snapshot diff", coordinator) as session:
        show_differences(session, directory, older, newer)


@snapshots.command("restore")
def snapshot_restore(
    directory: _Directory, name: _Snapshot, coordinator: Coordinator = DEFAULT_COORDINATOR
) -> None:
    """Restore DIR from a snapshot.

    Deletes the present contents of DIR.
    """
    with open_session("snapshot restore", coordinator) as session, session.errors.about(directory):
        place = session.place(directory)
        place.files.snapshots.restore(place.path, name)


@snapshots.command("rm")
def snapshot_rm(directory: _Directory, name: _Snapshot, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Delete a snapshot."""
    with open_session("snapshot rm", coordinator) as session, session.errors.about(directory):
        place = session.place(directory)
        place.files.snapshots.delete(place.path, name)


@snapshots.command("rename")
def snapshot_rename(
    directory: _Directory,
    name: _Snapshot,
    new_name: Annotated[str, typer.Argument(metavar="NEW-NAME", show_default=False)],
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Rename a snapshot."""
    with open_session("snapshot rename", coordinator) as session, session.errors.about(directory):
        place = session.place(directory)
        place.files.snapshots.rename(place.path, name, new_name)
