"""Every command that a client needs, declared; `peacefs.command` adds those that start services.

Nothing heavy is imported before a command is chosen: `peacefs ls` pays for no cluster, `peacefs up` for no HTTP.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import peacefs
from peacefs.client.addresses import DEFAULT_ADDRESS
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import (
    balance_bytes_per_second_default,
    balance_bytes_per_second_min,
    balance_threshold_percent_default,
    coordinator_http_port_default,
    local_datanodes_default,
    maintenance_hours_default,
    maintenance_hours_max,
    replication_max,
    temporary_age_hours_default,
    trash_minutes_max,
)

from .complaints import complain
from .options import Coordinator

if TYPE_CHECKING:
    from .session import Session


class Commands(TyperGroup):
    """Says every fault in one line and never shows a traceback of one that the program foresaw."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            # Here, where a reader that has gone is still a fault like others; at exit it would be a warning.
            sys.stdout.flush()
        except PeacefsError as error:
            complain(ctx.invoked_subcommand, error.message)
            raise typer.Exit(1) from None
        return result


application = typer.Typer(
    cls=Commands,
    help="A distributed, replicated file system for stream processors that checkpoint their state.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Paths = Annotated[list[str], typer.Argument(metavar="PATH", show_default=False)]
_DEFAULT_COORDINATOR = DEFAULT_ADDRESS.http


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"peacefs {peacefs.__version__}")
        raise typer.Exit


@application.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""


@contextlib.contextmanager
def _session(command: str, coordinator: str) -> Iterator[Session]:
    """Exit status 1 when a path made trouble."""
    from .session import Session

    with Session(command, coordinator) as session:
        yield session
    if session.complaints.any:
        raise typer.Exit(1)


@application.command()
def up(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Where the cluster keeps everything. [default: peacefs/cluster in XDG data]",
        ),
    ] = None,
    datanodes: Annotated[
        int | None,
        typer.Option(
            "--datanodes",
            metavar="N",
            help=f"How many. [default: as many as DIR has; {local_datanodes_default} in a new one]",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The coordinator's HTTP port; 0 for a free one.")
    ] = coordinator_http_port_default,
    datanode_port: Annotated[
        int,
        typer.Option(
            "--datanode-port",
            min=0,
            max=65535,
            help="The first of the datanodes' ports, two each; 0 for free ones.",
        ),
    ] = 0,
    trash_minutes: Annotated[
        int,
        typer.Option(
            "--trash-minutes",
            metavar="N",
            min=0,
            max=trash_minutes_max,
            help="How long what `peacefs rm` removes stays in its user's trash, at least; 0 for no trash.",
        ),
    ] = 0,
) -> None:
    """Run a whole cluster on this machine.

    Prints the URI to give to Spark, and runs until Ctrl-C.
    """
    from peacefs.client.local_cluster import LocalCluster

    from .cluster import default_directory, run_until_stopped

    options = [f"--trash-minutes={trash_minutes}"]
    run_until_stopped(LocalCluster(directory or default_directory(), datanodes, port, datanode_port, options))


@application.command()
def ls(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="[default: the home directory]", show_default=False)
    ] = None,
    recursive: Annotated[bool, typer.Option("--recursive", "-R", help="List directories in directories.")] = False,
    human: Annotated[bool, typer.Option("--human", "-h", help="Sizes such as 64 M.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """List files and directories."""
    from .listing import ListStyle, list_places

    with _session("ls", coordinator) as session:
        list_places(session, paths or ["."], ListStyle(recursive, human, as_json))


@application.command()
def stat(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[FORMAT] PATH",
            show_default=False,
            help="%b bytes, %n name, %o block size, %r replication, %y time (default), %Y in ms, %F kind, "
            "%u owner, %g group, %a and %A permission, %x and %X last access.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Show what is known about paths."""
    from .listing import show_status

    # As with `hdfs dfs -stat`: a first argument with a percent sign is the format.
    has_format = "%" in arguments[0]
    if has_format and len(arguments) == 1:
        raise typer.BadParameter("a path must follow the format")
    with _session("stat", coordinator) as session:
        show_status(session, arguments[has_format:], arguments[0] if has_format else "%y", as_json=as_json)


@application.command()
def put(
    sources: Annotated[list[str], typer.Argument(metavar="LOCAL", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="DEST", show_default=False)],
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace files that are there.")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Copy local files and directories in.

    A LOCAL of - is standard input.
    """
    from .upload import put

    with _session("put", coordinator) as session:
        put(session, sources, target, force=force)


@application.command()
def get(
    sources: Annotated[list[str], typer.Argument(metavar="REMOTE", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="LOCAL", show_default=False)],
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace files that are there.")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Copy files and directories out."""
    from .download import get

    with _session("get", coordinator) as session:
        get(session, sources, target, force=force)


@application.command()
def cat(paths: Paths, coordinator: Coordinator = _DEFAULT_COORDINATOR) -> None:
    """Write files to stdout."""
    from .download import cat

    with _session("cat", coordinator) as session:
        cat(session, paths)


@application.command()
def tail(paths: Paths, coordinator: Coordinator = _DEFAULT_COORDINATOR) -> None:
    """Write the last KiB of files to stdout."""
    from .download import tail

    with _session("tail", coordinator) as session:
        tail(session, paths)


@application.command()
def mv(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="DEST", show_default=False)],
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Rename a path, or move paths into a directory."""
    from .changes import move

    with _session("mv", coordinator) as session:
        move(session, sources, target)


@application.command()
def cp(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="DEST", show_default=False)],
    recursive: Annotated[bool, typer.Option("--recursive", "-r", "-R", help="Directories too.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace files that are there.")] = False,
    preserve: Annotated[
        bool, typer.Option("--preserve", "-p", help="Keep times and, for a superuser, owners and groups.")
    ] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Copy files and directories.

    Within a cluster no data is copied, and a tree appears all at once.
    """
    from .tree_copy import CopyStyle, copy_all

    with _session("cp", coordinator) as session:
        copy_all(session, sources, target, CopyStyle(recursive, force, preserve))


@application.command()
def rm(
    paths: Paths,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", "-R", help="Directories too.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="It is fine that there is nothing.")] = False,
    skip_trash: Annotated[bool, typer.Option("--skip-trash", help="Delete for good at once.")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Delete files and directories.

    Where the coordinator was given --trash-minutes they are moved to /user/NAME/.Trash, and deleted from there
    when the time has come; what lies there already, and everything elsewhere, is deleted for good.
    """
    from .changes import RemoveStyle, remove

    with _session("rm", coordinator) as session:
        remove(session, paths, RemoveStyle(recursive, force, skip_trash))


@application.command()
def expunge(
    immediate: Annotated[bool, typer.Option("--immediate", help="All of it, however new.")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Delete what has been in one's trash for long enough."""
    from .changes import expunge

    with _session("expunge", coordinator) as session:
        expunge(session, immediate=immediate)


@application.command()
def mkdir(
    paths: Paths,
    parents: Annotated[
        bool, typer.Option("--parents", "-p", help="Make parents too; it is fine that it is there.")
    ] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Make directories."""
    from .changes import make_directories

    with _session("mkdir", coordinator) as session:
        make_directories(session, paths, parents=parents)


@application.command()
def count(
    paths: Paths,
    quotas: Annotated[bool, typer.Option("--quotas", "-q", help="Quotas and what is left of them first.")] = False,
    human: Annotated[bool, typer.Option("--human", "-h", help="Sizes such as 64 M.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Count directories, files and bytes.

    Columns as of `hdfs dfs -count`: with -q quota of names, how much of it is left, quota of bytes, how much of it
    is left; then directories, files, bytes, path.
    """
    from .quota_commands import CountStyle, count_trees

    with _session("count", coordinator) as session:
        count_trees(session, paths, CountStyle(quotas, human, as_json))


@application.command()
def du(
    paths: Paths,
    summary: Annotated[bool, typer.Option("--summary", "-s", help="Of each PATH as a whole.")] = False,
    human: Annotated[bool, typer.Option("--human", "-h", help="Sizes such as 64 M.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Show how many bytes there are, and how many with all replicas.

    Of everything in a directory, unless --summary is given.
    """
    from .usage import UsageStyle, show_usage

    with _session("du", coordinator) as session:
        show_usage(session, paths, UsageStyle(summary, human, as_json))


@application.command("test")
def ask_about_path(
    path: Annotated[str, typer.Argument(metavar="PATH", show_default=False)],
    exists: Annotated[bool, typer.Option("-e", help="Is it there?")] = False,
    directory: Annotated[bool, typer.Option("-d", help="Is it a directory?")] = False,
    file: Annotated[bool, typer.Option("-f", help="Is it a file?")] = False,
    filled: Annotated[bool, typer.Option("-s", help="Is it a file that is not empty?")] = False,
    empty: Annotated[bool, typer.Option("-z", help="Is its length 0?")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Answer a question about a path by the exit status.

    0 yes, 1 no, 2 wrong usage, 3 it could not be found out.
    """
    from .path_tests import holds

    wishes = (exists, directory, file, filled, empty)
    asked = [letter for letter, wanted in zip("edfsz", wishes, strict=True) if wanted]
    if len(asked) != 1:
        raise typer.BadParameter("give one of -e, -d, -f, -s and -z")
    try:
        with _session("test", coordinator) as session:
            yes = holds(session, path, asked[0])
    except PeacefsError as error:
        complain("test", error.message)
        raise typer.Exit(3) from None
    raise typer.Exit(0 if yes else 1)


@application.command()
def setrep(
    replication: Annotated[int, typer.Argument(metavar="N", min=1, max=replication_max, show_default=False)],
    paths: Paths,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Set how many replicas files have, and all files below directories.

    Returns at once; replicas are made or dropped after that.
    """
    from .attributes import change_replication

    with _session("setrep", coordinator) as session:
        change_replication(session, replication, paths)


_quotas = typer.Typer(
    help="How many names and bytes a directory may hold; for superusers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
application.add_typer(_quotas, name="quota")


@_quotas.command("set")
def quota_set(
    paths: Paths,
    names: Annotated[
        int | None,
        typer.Option("--names", metavar="N", min=1, help="Files and directories, DIR itself among them."),
    ] = None,
    space: Annotated[
        str | None, typer.Option("--space", metavar="BYTES", help="Of all replicas; 10g is 10 GiB.")
    ] = None,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Limit what directories may hold."""
    from .quota_commands import parse_size, set_quotas

    if names is None and space is None:
        raise typer.BadParameter("give --names, --space or both")
    with _session("quota set", coordinator) as session:
        set_quotas(session, paths, names, None if space is None else parse_size(space))


@_quotas.command("clear")
def quota_clear(
    paths: Paths,
    names: Annotated[bool, typer.Option("--names", help="Only that of files and directories.")] = False,
    space: Annotated[bool, typer.Option("--space", help="Only that of bytes.")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Take limits away: both, unless one is named."""
    from .quota_commands import NO_LIMIT, set_quotas

    both = names == space
    with _session("quota clear", coordinator) as session:
        set_quotas(session, paths, NO_LIMIT if names or both else None, NO_LIMIT if space or both else None)


@application.command()
def fsck(
    path: Annotated[str, typer.Argument(metavar="[PATH]", show_default=False)] = "/",
    every_file: Annotated[bool, typer.Option("--files", help="Healthy files too.")] = False,
    only_corrupt: Annotated[
        bool, typer.Option("--list-corrupt", help="Only chunks that are missing or have a corrupt replica.")
    ] = False,
    temporary: Annotated[
        bool,
        typer.Option("--temporary", help="List the temporary files that writers have left, and nothing else."),
    ] = False,
    older_than: Annotated[
        float,
        typer.Option("--older-than", metavar="HOURS", min=0, help="With --temporary: unchanged for so long."),
    ] = temporary_age_hours_default,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, the summary last.")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Inspect every file's replicas.

    Exit status: 0 healthy, 1 a fault, 2 wrong usage, 3 replicas lacking, in excess or all on one rack, 4 corrupt
    replicas of what can still be read, 5 data that cannot be read.
    """
    from .fsck import FsckStyle, check
    from .temporary import list_temporary

    if temporary:
        if every_file or only_corrupt:
            raise typer.BadParameter("it goes with --older-than and --json only", param_hint="--temporary")
        with _session("fsck", coordinator) as session, session.complaints.about(path):
            list_temporary(session, path, older_than, as_json=as_json)
        return
    with _session("fsck", coordinator) as session, session.complaints.about(path):
        raise typer.Exit(check(session, path, FsckStyle(every_file, only_corrupt, as_json)))


@application.command()
def report(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Show the cluster and its datanodes."""
    from .report import report

    report(coordinator, as_json=as_json)


datanodes = typer.Typer(
    help="Show datanodes, take them out of service and back.", no_args_is_help=True, rich_markup_mode=None
)
application.add_typer(datanodes, name="datanodes")
Datanodes = Annotated[
    list[str],
    typer.Argument(
        metavar="DATANODE", show_default=False, help="An id, its beginning, or HOST:PORT as `ls` shows them."
    ),
]


@datanodes.command("ls")
def list_datanodes(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """List datanodes, whether they serve, and how much of those that leave is still to be copied."""
    from .datanodes import list_datanodes

    list_datanodes(coordinator, as_json=as_json)


@datanodes.command()
def decommission(names: Datanodes, coordinator: Coordinator = _DEFAULT_COORDINATOR) -> None:
    """Copy what datanodes hold to others, and give them nothing new.

    Returns at once. A datanode that `ls` shows as decommissioned can be switched off for good.
    """
    from .datanodes import Decision, decide

    decide(coordinator, names, Decision.DECOMMISSION)


@datanodes.command()
def recommission(names: Datanodes, coordinator: Coordinator = _DEFAULT_COORDINATOR) -> None:
    """Take datanodes back into service."""
    from .datanodes import Decision, decide

    decide(coordinator, names, Decision.RECOMMISSION)


@datanodes.command()
def maintenance(
    names: Datanodes,
    hours: Annotated[
        float,
        typer.Option("--hours", min=0, max=maintenance_hours_max, help="How long their replicas are waited for."),
    ] = maintenance_hours_default,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Let datanodes be away for a while without copying what they hold.

    Returns at once. A datanode that `ls` shows as in maintenance can be switched off; `recommission` ends it.
    """
    from .datanodes import Decision, decide

    decide(coordinator, names, Decision.MAINTENANCE, hours)


@application.command()
def schedule(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again every second, until Ctrl-C.")] = False,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="Let express, paper, random or flow decide from now on, until the coordinator starts anew.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Show which chunks wait to be written and which are being written, where, and for how long."""
    from .schedule import ScheduleStyle, show_schedule

    show_schedule(coordinator, ScheduleStyle(watch, as_json, policy))


@application.command()
def balance(
    threshold: Annotated[
        float,
        typer.Option(
            "--threshold",
            metavar="PERCENT",
            min=0,
            max=100,
            help="How far a datanode's (or, with --disks, a disk's) use may be from that of all.",
        ),
    ] = balance_threshold_percent_default,
    rate: Annotated[
        int,
        typer.Option(
            "--rate",
            metavar="BYTES",
            min=balance_bytes_per_second_min,
            help="What each datanode sends, and receives, a second; with --disks, what it moves.",
        ),
    ] = balance_bytes_per_second_default,
    disks: Annotated[
        bool, typer.Option("--disks", help="Between the disks of each datanode, as `hdfs diskbalancer`.")
    ] = False,
    nodes: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NODE", help="With --disks: only of this datanode; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The result as a JSON object.")] = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Move replicas from datanodes that are fuller than others to emptier ones.

    Runs until all are within the threshold, nothing more can be moved, or Ctrl-C. Exit status as of
    `hdfs balancer`: 0 balanced, 255 another run is under way, 254 nothing can be moved, 253 moves fail, 250
    interrupted.
    """
    from .balance import BalanceStyle, balance

    style = BalanceStyle(threshold, rate, as_json)
    if nodes and not disks:
        raise typer.BadParameter("--node is of use with --disks alone: between datanodes all take part")
    if disks:
        from .disk_balance import balance_disks

        raise typer.Exit(balance_disks(coordinator, nodes or (), style))
    raise typer.Exit(balance(coordinator, style))


_Recursive = Annotated[bool, typer.Option("--recursive", "-R", help="And all that is below.")]


@application.command(context_settings={"ignore_unknown_options": True})
def chmod(
    mode: Annotated[str, typer.Argument(metavar="MODE", show_default=False, help="750, or u=rwx,g=rx,o=.")],
    paths: Paths,
    recursive: _Recursive = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Change who may do what."""
    from .attributes import change_mode

    with _session("chmod", coordinator) as session:
        change_mode(session, mode, paths, recursive=recursive)


@application.command()
def chown(
    owner: Annotated[str, typer.Argument(metavar="[OWNER][:GROUP]", show_default=False)],
    paths: Paths,
    recursive: _Recursive = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Change the owner, the group, or both."""
    from .attributes import change_owner

    name, _, group = owner.partition(":")
    if not name and not group:
        raise typer.BadParameter("an owner or a group must be named")
    with _session("chown", coordinator) as session:
        change_owner(session, name or None, group or None, paths, recursive=recursive)


@application.command()
def chgrp(
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    paths: Paths,
    recursive: _Recursive = False,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Change the group."""
    from .attributes import change_owner

    with _session("chgrp", coordinator) as session:
        change_owner(session, None, group, paths, recursive=recursive)


_snapshots = typer.Typer(help="Directories as they were.", no_args_is_help=True)
application.add_typer(_snapshots, name="snapshot")
Directory = Annotated[str, typer.Argument(metavar="DIR", show_default=False)]
_Snapshot = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@_snapshots.command("allow")
def snapshot_allow(directory: Directory, coordinator: Coordinator = _DEFAULT_COORDINATOR) -> None:
    """Let snapshots of a directory be taken; for superusers."""
    with _session("snapshot allow", coordinator) as session, session.complaints.about(directory):
        place = session.place(directory)
        place.files.allow_snapshots(place.path)


@_snapshots.command("disallow")
def snapshot_disallow(directory: Directory, coordinator: Coordinator = _DEFAULT_COORDINATOR) -> None:
    """Let no more be taken, once none is left; for superusers."""
    with _session("snapshot disallow", coordinator) as session, session.complaints.about(directory):
        place = session.place(directory)
        place.files.disallow_snapshots(place.path)


@_snapshots.command("create")
def snapshot_create(
    directory: Directory,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", show_default=False)] = None,
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Take one, which is seen below DIR/.snapshot/NAME."""
    from .snapshot_commands import create

    with _session("snapshot create", coordinator) as session:
        create(session, directory, name)


@_snapshots.command("ls")
def snapshot_ls(directory: Directory, coordinator: Coordinator = _DEFAULT_COORDINATOR) -> None:
    """Show the names of a directory's snapshots."""
    from .snapshot_commands import show_names

    with _session("snapshot ls", coordinator) as session:
        show_names(session, directory)


@_snapshots.command("diff")
def snapshot_diff(
    directory: Directory,
    older: Annotated[str, typer.Argument(metavar="FROM", show_default=False)],
    newer: Annotated[str, typer.Argument(metavar="[TO]", show_default=False)] = ".",
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Show what differs between two snapshots; . is the directory as it is now."""
    from .snapshot_commands import show_differences

    with _session("snapshot diff", coordinator) as session:
        show_differences(session, directory, older, newer)


@_snapshots.command("restore")
def snapshot_restore(
    directory: Directory, name: _Snapshot, coordinator: Coordinator = _DEFAULT_COORDINATOR
) -> None:
    """Put DIR back to what a snapshot shows; what it holds now is deleted."""
    with _session("snapshot restore", coordinator) as session, session.complaints.about(directory):
        place = session.place(directory)
        place.files.restore_snapshot(place.path, name)


@_snapshots.command("rm")
def snapshot_rm(directory: Directory, name: _Snapshot, coordinator: Coordinator = _DEFAULT_COORDINATOR) -> None:
    """Drop a snapshot."""
    with _session("snapshot rm", coordinator) as session, session.complaints.about(directory):
        place = session.place(directory)
        place.files.delete_snapshot(place.path, name)


@_snapshots.command("rename")
def snapshot_rename(
    directory: Directory,
    name: _Snapshot,
    new_name: Annotated[str, typer.Argument(metavar="NEW-NAME", show_default=False)],
    coordinator: Coordinator = _DEFAULT_COORDINATOR,
) -> None:
    """Give a snapshot another name."""
    with _session("snapshot rename", coordinator) as session, session.complaints.about(directory):
        place = session.place(directory)
        place.files.rename_snapshot(place.path, name, new_name)
