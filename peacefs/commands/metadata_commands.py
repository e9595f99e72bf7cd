"""`peacefs metadata`: administer the coordinator's metadata.

With --dir a command works on the files of a coordinator on this machine; with --coordinator it calls one.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from peacefs.client.command_line.options import DEFAULT_COORDINATOR, Coordinator
from peacefs.client.command_line.presentation import human_size

metadata = typer.Typer(
    help="Back up, restore and check the coordinator's metadata.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Directory = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="Data directory of the coordinator.", show_default=False)
]


@metadata.command("backup")
def back_up_metadata(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="Data directory of a coordinator on this machine, running or not."
        ),
    ] = None,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace FILE if it exists.")] = False,
) -> None:
    """Copy the metadata into FILE.

    FILE appears when it is complete. Keep the coordinator's cluster.secret with it.
    """
    if directory is None:
        _back_up_from(coordinator, file, force)
    else:
        _back_up_directory(directory, file, force)
    _say(f"{file}: {human_size(file.stat().st_size)}B")


def _back_up_directory(directory: Path, file: Path, force: bool) -> None:
    from peacefs.client.command_line.progress import transfer_progress
    from peacefs.coordinator.metadata.sqlite.backup import back_up
    from peacefs.coordinator.metadata.sqlite.file import STORE_NAME

    with transfer_progress() as progress:
        back_up(directory / STORE_NAME, file, progress.reach, replace=force)


def _back_up_from(coordinator: str, file: Path, force: bool) -> None:
    from peacefs.client.command_line.progress import transfer_progress
    from peacefs.client.control.addresses import parse_address
    from peacefs.client.control.api import current_user
    from peacefs.client.control.http import CoordinatorHttp
    from peacefs.coordinator.metadata.sqlite.backup import staged
    from peacefs.protocol.limits import backup_timeout_s
    from peacefs.runtime.private_files import opener

    http = CoordinatorHttp(parse_address(coordinator))
    try:
        with (
            staged(file, replace=force) as copying,
            open(copying, "wb", opener=opener) as sink,
            transfer_progress() as progress,
        ):
            progress.name("waiting for the coordinator's copy")
            path = f"/v1/metadata/backup?user={quote(current_user())}"
            http.download(path, sink.write, progress.reach, answer_timeout_s=backup_timeout_s)
    finally:
        http.close()


@metadata.command("restore")
def restore_metadata(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    directory: Directory,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Set existing metadata aside as *.replaced.")
    ] = False,
    with_log: Annotated[
        bool,
        typer.Option(
            "--with-log",
            help="Then apply the changes after the backup from the log in DIR. Use this if the metadata is "
            "damaged and its log is sound.",
        ),
    ] = False,
) -> None:
    """Restore DIR's metadata from a backup.

    Stop the coordinator first. Chunks that are not in the backup stay on the datanodes until `release-floor`.
    """
    from peacefs.client.command_line.progress import transfer_progress
    from peacefs.coordinator.metadata.sqlite import backup
    from peacefs.coordinator.metadata.sqlite.file import STORE_NAME

    with transfer_progress() as progress:
        restored = backup.restore(
            file, directory / STORE_NAME, progress.reach, random.SystemRandom(), replace=force, with_log=with_log
        )
    if with_log:
        _say(f"{restored.replayed} commits after the backup were taken from the log")
    if restored.replaced is not None:
        _say(f"what was there is now {restored.replaced}")
    if not (directory / "cluster.secret").exists():
        _say(
            "datanodes know the secret of the old coordinator: start the new one with its --secret-file, or put "
            f"its cluster.secret into {directory}"
        )
    _say("restored; data that was written after the backup stays on the datanodes until `release-floor`")


@metadata.command("check")
def check_metadata(directory: Directory) -> None:
    """Check the metadata in DIR.

    Checks every page, then the invariants of names, files and chunks. The coordinator may run. Exit status 1 if
    something is wrong.
    """
    from peacefs.client.command_line.progress import transfer_progress
    from peacefs.coordinator.metadata.sqlite.check import check
    from peacefs.coordinator.metadata.sqlite.file import STORE_NAME

    with transfer_progress() as progress:

        def begun(name: str, number: int, steps: int) -> None:
            progress.name(f"{number}/{steps} {name}")

        findings = check(directory / STORE_NAME, begun)
    for problem in findings.problems:
        typer.echo(f"WRONG {problem.name}: {problem.found} times not, as in {'; '.join(problem.examples)}")
    if findings.files is not None:
        typer.echo(
            f"{findings.directories} directories, {findings.files} files, {findings.chunks} chunks: "
            + ("damaged" if findings.problems else "sound")
        )
    if findings.commits_behind:
        _say(f"the last {findings.commits_behind} commits are in the log alone, and not counted")
    if findings.problems:
        raise typer.Exit(1)


@metadata.command("accept-loss")
def accept_loss(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="Data directory of a coordinator that is stopped and does not start."
        ),
    ] = None,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Continue without lost commits.

    These commits were acknowledged, and are missing in the metadata. Their chunks stay on the datanodes until
    `release-floor`. A damaged log is kept as *.lost-log.
    """
    if not yes:
        typer.confirm(
            "Names that were lost do not come back, not even from a backup later. Go on?", abort=True, err=True
        )
    if directory is not None:
        _accept_in(directory)
    else:
        _accept_at(coordinator)


def _accept_in(directory: Path) -> None:
    from peacefs.coordinator.metadata.sqlite.file import STORE_NAME
    from peacefs.coordinator.metadata.sqlite.lost_commits import accept

    accepted = accept(directory / STORE_NAME, random.SystemRandom())
    if accepted is None:
        _say("nothing is missing; nothing was changed")
        return
    if accepted.log is not None:
        _say(f"the damaged log was copied to {accepted.log}")
    _say(
        f"accepted: {accepted.loss}. The coordinator starts again; datanodes delete nothing until `release-floor`"
    )


def _accept_at(coordinator: str) -> None:
    import msgspec

    from peacefs.client.control.addresses import parse_address
    from peacefs.client.control.api import current_user
    from peacefs.client.control.http import CoordinatorHttp

    http = CoordinatorHttp(parse_address(coordinator))
    try:
        answer = http.ask("POST", "/v1/metadata/accept-loss", params={"user": current_user()})
    finally:
        http.close()
    if msgspec.json.decode(answer)["accepted"]:
        _say("accepted: names can be changed again; datanodes delete nothing until `release-floor`")
    else:
        _say("nothing is missing; nothing was changed")


@metadata.command("leave-journal")
def leave_journal(
    directory: Directory,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Continue without a journal.

    Stop the coordinator first. For a cluster that continues with one coordinator, the one that led last. Changes
    that only the other coordinators and the journal have are lost.
    """
    from peacefs.coordinator.metadata.sqlite import exact_copies
    from peacefs.coordinator.metadata.sqlite.file import STORE_NAME

    if not yes:
        typer.confirm("Has this coordinator led last, and does no other one run? Go on?", abort=True, err=True)
    if exact_copies.leave_journal(directory / STORE_NAME):
        _say(f"{directory} follows no journal any more: start its coordinator without --journal")
    else:
        _say(f"{directory} follows no journal; nothing was changed")


@metadata.command("discard-journal")
def discard_journal(
    journal: Annotated[
        str,
        typer.Option(
            "--journal",
            metavar="ADDRESS",
            help="Address of the journal, as for `peacefs coordinator`.",
            show_default=False,
        ),
    ],
    login: Annotated[
        Path | None,
        typer.Option("--journal-login", metavar="FILE", help="File with one line for etcd, USER:PASSWORD."),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option("--journal-ca", metavar="FILE", help="The CA of etcd's certificates, in PEM."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove a journal, after a restore.

    Stop all coordinators first. The coordinator that starts first begins a new journal; the others copy its
    metadata. Changes that only the journal has are lost.
    """
    from peacefs.coordinator.journal.address import JournalOptions, open_journal
    from peacefs.coordinator.journal.port import JournalRefused, JournalUnsure
    from peacefs.protocol.errors import PeacefsError

    opened = open_journal(JournalOptions(journal, ca, login=login), no_tls=True)
    try:
        identity = opened.identity()
        if identity is None:
            _say("there is no journal; nothing was changed")
            return
        leader = opened.leader()
        if leader is not None:
            raise PeacefsError(f"{leader.name} leads: stop all coordinators first; nothing was changed")
        if not yes:
            typer.confirm(f"Remove the journal of cluster {identity.cluster}? Go on?", abort=True, err=True)
        opened.discard(identity)
        _say(
            "the journal was removed: start the coordinator whose metadata counts, then the others. A store that "
            "followed it is to leave it first (`peacefs metadata leave-journal`)"
        )
    except (JournalUnsure, JournalRefused) as problem:
        raise PeacefsError(str(problem)) from None
    finally:
        opened.close()


@metadata.command("release-floor")
def release_gc_floor(
    coordinator: Coordinator = DEFAULT_COORDINATOR,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Release the GC floor that a restore holds.

    Chunks that were not in the backup are deleted for good, once the coordinator has run for the lifetime of a
    write token.
    """
    import msgspec

    from peacefs.client.control.addresses import parse_address
    from peacefs.client.control.api import current_user
    from peacefs.client.control.http import CoordinatorHttp
    from peacefs.protocol.limits import write_token_lifetime_s

    http = CoordinatorHttp(parse_address(coordinator))
    try:
        unreferenced = msgspec.json.decode(http.ask("GET", "/v1/status"))["unreferenced"]
        if not unreferenced["floor_held"]:
            _say(
                "nothing to release: this coordinator keeps nothing on account of a restored backup (its floor, "
                "below which chunks without a file are deleted, is not held)"
            )
            return
        size = human_size(unreferenced["bytes_of_earlier_epochs"])
        doomed = (
            f"{unreferenced['chunks_of_earlier_epochs']} chunks ({size}B with all replicas) "
            "that no file refers to, on the datanodes that are here"
        )
        _say(f"this will delete {doomed}. What was written after the backup cannot be recovered then")
        if not yes:
            typer.confirm("Delete them?", abort=True, err=True)
        http.ask("POST", "/v1/metadata/release-floor", params={"user": current_user()})
    finally:
        http.close()
    _say(
        f"released: they are deleted once the coordinator has run for {write_token_lifetime_s / 3600:g} hours, "
        "when nobody may write them any more"
    )


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")
