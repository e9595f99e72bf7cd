"""Declares the commands for files: arguments and `--help`. Other modules execute them."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import replication_max
from peacefs.protocol.new_file import block_bytes_notice, possible_block_bytes

from .errors import report_error
from .options import DEFAULT_COORDINATOR, Coordinator, Paths, open_session

# Default and maximum number of files that `put` and `get` copy at once.
transfer_jobs_default: Final = 4
transfer_jobs_max: Final = 64


_Recursive = Annotated[bool, typer.Option("--recursive", "-R", help="Include everything below directories.")]
_Anyway = Annotated[
    bool, typer.Option("--recursive", "-r", "-R", help="Include directories, as without this option.")
]
_Force = Annotated[bool, typer.Option("--force", "-f", help="Replace existing files.")]
_Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Skip existing files of the same length and modification time, replace others, and give copies "
        "the time of their source.",
    ),
]
_Jobs = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", metavar="N", min=1, max=transfer_jobs_max, help="Number of files to copy at the same time."
    ),
]
_BlockSize = Annotated[
    str,
    typer.Option("--block-size", metavar="BYTES", help="Chunk size, up to 64m.", show_default=False),
]
_TransferJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per file, and a summary.")]


def ls(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="[default: the home directory]", show_default=False)
    ] = None,
    recursive: Annotated[bool, typer.Option("--recursive", "-R", help="List subdirectories recursively.")] = False,
    directory: Annotated[
        bool, typer.Option("--directory", "-d", help="List directories themselves, not their contents.")
    ] = False,
    human: Annotated[bool, typer.Option("--human", "-h", help="Show sizes such as 64 M.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """List files and directories."""
    from .listing import ListStyle, list_places

    with open_session("ls", coordinator) as session:
        list_places(session, paths or ["."], ListStyle(recursive and not directory, human, as_json, directory))


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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Show the metadata of paths."""
    from .listing import show_status

    # As with `hdfs dfs -stat`, a first argument with a percent sign is the format.
    if "%" in coordinator:
        raise typer.BadParameter(
            "the format is the first argument: peacefs stat %b PATH prints the size", param_hint="-c"
        )
    has_format = "%" in arguments[0]
    if has_format and len(arguments) == 1:
        raise typer.BadParameter("a path must follow the format")
    with open_session("stat", coordinator) as session:
        show_status(session, arguments[has_format:], arguments[0] if has_format else "%y", as_json=as_json)


def put(
    sources: Annotated[list[str], typer.Argument(metavar="LOCAL", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="DEST", show_default=False)],
    force: _Force = False,
    resume: _Resume = False,
    jobs: _Jobs = transfer_jobs_default,
    block_size: _BlockSize = "",
    as_json: _TransferJson = False,
    _recursive: _Anyway = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Copy local files and directories into the cluster.

    If LOCAL is -, read standard input.
    """
    from .copies.transfers import TransferStyle
    from .copies.upload import put
    from .quotas import parse_size

    with open_session("put", coordinator) as session:
        wanted = parse_size(block_size) if block_size else 0
        given = possible_block_bytes(wanted)
        if (notice := block_bytes_notice(wanted, given)) is not None:
            report_error("put", notice)
        put(session, sources, target, TransferStyle(force, resume, jobs, as_json, given))


def get(
    paths: Annotated[list[str], typer.Argument(metavar="REMOTE... [LOCAL]", show_default=False)],
    force: _Force = False,
    resume: _Resume = False,
    jobs: _Jobs = transfer_jobs_default,
    as_json: _TransferJson = False,
    _recursive: _Anyway = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Copy files and directories out of the cluster.

    Without LOCAL, copies a single REMOTE into the working directory. If LOCAL is -, writes to standard output.
    """
    from .copies.download import cat, get
    from .copies.transfers import TransferStyle

    sources, target = (paths[:-1], paths[-1]) if len(paths) > 1 else (paths, ".")
    with open_session("get", coordinator) as session:
        if target == "-":
            cat(session, sources)
        else:
            get(session, sources, target, TransferStyle(force, resume, jobs, as_json))


def cat(paths: Paths, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Write files to stdout."""
    from .copies.download import cat

    with open_session("cat", coordinator) as session:
        cat(session, paths)


def tail(
    paths: Paths,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Also write what is appended to the file, until Ctrl-C.")
    ] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Write the last KiB of files to stdout."""
    from .copies.download import follow as follow_file
    from .copies.download import tail

    if follow and len(paths) != 1:
        raise typer.BadParameter("with -f, give one PATH")
    with open_session("tail", coordinator) as session:
        if follow:
            follow_file(session, paths[0])
        else:
            tail(session, paths)


def append_to_file(
    sources: Annotated[list[str], typer.Argument(metavar="LOCAL", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="DEST", show_default=False)],
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Append local files to a file. Create it if it is missing.

    If LOCAL is -, read standard input. All appended data becomes visible at once.
    """
    from .copies.upload import append

    with open_session("appendToFile", coordinator) as session:
        append(session, sources, target)


def checksum(paths: Paths, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Show the checksums of files, as HDFS computes them.

    They are equal for equal contents and block sizes, here and in HDFS. Reads the whole file.
    """
    from .copies.download import show_checksums

    with open_session("checksum", coordinator) as session:
        show_checksums(session, paths)


def touchz(paths: Paths, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Create empty files, or set the time of empty ones.

    Refuses directories, and files that are not empty.
    """
    from .changes import touch_empty

    with open_session("touchz", coordinator) as session:
        touch_empty(session, paths)


def find(
    paths: Paths,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--name", "-name", metavar="PATTERN", help="Print only names that match. May be given several times."
        ),
    ] = None,
    names_of_any_case: Annotated[
        list[str] | None, typer.Option("--iname", "-iname", metavar="PATTERN", help="As -name, but ignore case.")
    ] = None,
    zeros: Annotated[
        bool, typer.Option("--print0", "-print0", help="End each path with a zero byte instead of a new line.")
    ] = False,
    _print: Annotated[bool, typer.Option("-print", help="Print paths, as without this option.")] = False,
    _and: Annotated[bool, typer.Option("-and", "-a", help="Between patterns, as without this option.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """List the paths of trees whose names match.

    Without a pattern, lists everything. With several patterns, lists names that match all of them.
    """
    from .search import FindStyle, find

    with open_session("find", coordinator) as session:
        find(session, paths, FindStyle(names or [], names_of_any_case or [], zeros))


def mv(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="DEST", show_default=False)],
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Rename a path, or move paths into a directory."""
    from .changes import move

    with open_session("mv", coordinator) as session:
        move(session, sources, target)


def cp(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="DEST", show_default=False)],
    recursive: Annotated[bool, typer.Option("--recursive", "-r", "-R", help="Include directories.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace existing files.")] = False,
    preserve: Annotated[
        bool, typer.Option("--preserve", "-p", help="Keep times and, for a superuser, owners and groups.")
    ] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Copy files and directories.

    Within a cluster, shares the data instead of copying it, and a tree appears all at once.
    """
    from .copies.tree_copy import CopyStyle, copy_all

    with open_session("cp", coordinator) as session:
        copy_all(session, sources, target, CopyStyle(recursive, force, preserve))


def rm(
    paths: Paths,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", "-R", help="Include directories.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Succeed even if nothing matches.")] = False,
    skip_trash: Annotated[
        bool, typer.Option("--skip-trash", "-skipTrash", help="Delete for good, without the trash.")
    ] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Delete files and directories.

    If the coordinator runs with --trash-minutes, moves them to /user/NAME/.Trash, where they are deleted after
    that time. Without it, or for paths in the trash, deletes them for good.
    """
    from .changes import RemoveStyle, remove

    with open_session("rm", coordinator) as session:
        remove(session, paths, RemoveStyle(recursive, force, skip_trash))


def expunge(
    immediate: Annotated[
        bool, typer.Option("--immediate", "-immediate", help="Delete everything in the trash, however new.")
    ] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Delete what has been in your trash long enough."""
    from .changes import expunge

    with open_session("expunge", coordinator) as session:
        expunge(session, immediate=immediate)


def mkdir(
    paths: Paths,
    parents: Annotated[
        bool, typer.Option("--parents", "-p", help="Make missing parents; succeed if the directory exists.")
    ] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Create directories."""
    from .changes import make_directories

    with open_session("mkdir", coordinator) as session:
        make_directories(session, paths, parents=parents)


def ask_about_path(
    path: Annotated[str, typer.Argument(metavar="PATH", show_default=False)],
    exists: Annotated[bool, typer.Option("-e", help="Test whether the path exists.")] = False,
    directory: Annotated[bool, typer.Option("-d", help="Test whether it is a directory.")] = False,
    file: Annotated[bool, typer.Option("-f", help="Test whether it is a file.")] = False,
    filled: Annotated[bool, typer.Option("-s", help="Test whether it is a file that is not empty.")] = False,
    empty: Annotated[bool, typer.Option("-z", help="Test whether its length is 0.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Test a path; the exit status is the answer.

    0 yes, 1 no, 2 wrong usage, 3 unknown because of an error.
    """
    from .path_tests import holds

    letters = (exists, directory, file, filled, empty)
    asked = [letter for letter, wanted in zip("edfsz", letters, strict=True) if wanted]
    if len(asked) != 1:
        raise typer.BadParameter("give one of -e, -d, -f, -s and -z")
    try:
        with open_session("test", coordinator) as session:
            yes = holds(session, path, asked[0])
    except PeacefsError as error:
        report_error("test", error.message)
        raise typer.Exit(3) from None
    raise typer.Exit(0 if yes else 1)


def setrep(
    replication: Annotated[int, typer.Argument(metavar="N", min=1, max=replication_max, show_default=False)],
    paths: Paths,
    wait: Annotated[
        bool,
        typer.Option("--wait", "-w", help="Wait until each file has that many replicas, however long it takes."),
    ] = False,
    _recursive: _Anyway = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Set the replication of files.

    For a directory, sets it for all files below. Without --wait, returns at once; replicas are copied or dropped
    later.
    """
    from .attributes import change_replication

    with open_session("setrep", coordinator) as session:
        change_replication(session, replication, paths, wait=wait)


def chmod(
    mode: Annotated[
        str, typer.Argument(metavar="MODE", show_default=False, help="Mode, such as 750 or u=rwx,g=rx,o=.")
    ],
    paths: Paths,
    recursive: _Recursive = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Change permissions."""
    from .attributes import change_mode

    with open_session("chmod", coordinator) as session:
        change_mode(session, mode, paths, recursive=recursive)


def chown(
    owner: Annotated[str, typer.Argument(metavar="[OWNER][:GROUP]", show_default=False)],
    paths: Paths,
    recursive: _Recursive = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Change the owner, the group, or both."""
    from .attributes import change_owner

    name, _, group = owner.partition(":")
    if not name and not group:
        raise typer.BadParameter("an owner or a group must be named")
    with open_session("chown", coordinator) as session:
        change_owner(session, name or None, group or None, paths, recursive=recursive)


def chgrp(
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    paths: Paths,
    recursive: _Recursive = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Change the group."""
    from .attributes import change_owner

    with open_session("chgrp", coordinator) as session:
        change_owner(session, None, group, paths, recursive=recursive)
