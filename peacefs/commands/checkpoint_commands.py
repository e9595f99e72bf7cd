"""`peacefs checkpoint`: inspect, verify, move and roll back Spark's streaming checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from peacefs.client.command_line.options import DEFAULT_COORDINATOR, Coordinator

# By default, a checkpoint that was written to this recently counts as in use.
checkpoint_idle_s: Final = 30.0
# An unreferenced file that is younger than this may still be referred to soon.
checkpoint_orphan_age_s: Final = 3600.0


checkpoint = typer.Typer(
    help="Inspect, verify, move and roll back Spark checkpoints. A PATH may be file:///... on this machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Root = Annotated[str, typer.Argument(metavar="PATH", help="A checkpoint's root.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per checkpoint.")]


@checkpoint.command("ls")
def list_(
    paths: Annotated[list[str] | None, typer.Argument(metavar="PATH", help="[default: /]")] = None,
    as_json: Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """List checkpoints at and below paths.

    Shows the batches, size and query of each.
    """
    from peacefs.client.command_line.session import Session
    from peacefs.spark_connector.checkpoints.commands.inspect import list_checkpoints

    with Session("checkpoint ls", coordinator) as session:
        list_checkpoints(session, paths or ["/"], as_json=as_json)
    if session.errors.any:
        raise typer.Exit(1)


@checkpoint.command()
def show(
    path: Root,
    stores: Annotated[
        bool, typer.Option("--stores", "-s", help="Also show the state versions of each partition.")
    ] = False,
    as_json: Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Show what a checkpoint holds.

    Its query, batches, sources, operators and their state.
    """
    from peacefs.client.command_line.session import Session
    from peacefs.spark_connector.checkpoints.commands.inspect import show_checkpoint

    with Session("checkpoint show", coordinator) as session:
        show_checkpoint(session, path, stores=stores, as_json=as_json)


@checkpoint.command()
def verify(
    path: Root,
    batch: Annotated[
        int | None,
        typer.Option("--batch", metavar="N", min=0, help="Judge this batch. [default: the last one done]"),
    ] = None,
    with_sink: Annotated[
        str | None,
        typer.Option("--with-sink", metavar="DIR", help="Directory of a file sink; also verify its log."),
    ] = None,
    as_json: Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Verify that a query could resume from a checkpoint.

    Names the last good batch. Reads every file that a restart from it needs, and verifies checksums, contents, and
    that the files fit together. Exit status: 0 whole; 3 faults that a restart survives; 4 a restart fails, but a
    repair or rollback helps; 5 neither helps.
    """
    from peacefs.client.command_line.session import Session
    from peacefs.spark_connector.checkpoints.commands.inspect import verify_checkpoint

    with Session("checkpoint verify", coordinator) as session:
        status = verify_checkpoint(session, path, batch, with_sink, as_json=as_json)
    raise typer.Exit(status)


Archive = Annotated[Path, typer.Argument(metavar="FILE", help="Archive on this machine.", show_default=False)]
NewRoot = Annotated[
    str, typer.Argument(metavar="PATH", help="New checkpoint root, which must not exist.", show_default=False)
]


@checkpoint.command()
def fork(path: Root, new: NewRoot, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Copy a checkpoint to another root of its cluster.

    Copies names and no data, in one commit, also while the query runs. The copy does not depend on the original.
    """
    from peacefs.client.command_line.session import Session
    from peacefs.spark_connector.checkpoints.commands.move import fork_checkpoint

    with Session("checkpoint fork", coordinator) as session:
        fork_checkpoint(session, path, new)


@checkpoint.command()
def export(
    path: Root,
    file: Archive,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace FILE if it exists.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Write a checkpoint into a zip archive.

    The archive contains a SHA-256 of every file. On a cluster, the query may run meanwhile.
    """
    from peacefs.client.command_line.session import Session
    from peacefs.spark_connector.checkpoints.commands.move import export_checkpoint

    with Session("checkpoint export", coordinator) as session:
        export_checkpoint(session, path, file, force=force)


@checkpoint.command("import")
def import_(file: Archive, new: NewRoot, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Make a new checkpoint from a verified archive."""
    from peacefs.client.command_line.session import Session
    from peacefs.spark_connector.checkpoints.commands.move import import_checkpoint

    with Session("checkpoint import", coordinator) as session:
        import_checkpoint(session, file, new)


@checkpoint.command()
def ancestry(
    paths: Annotated[list[str] | None, typer.Argument(metavar="PATH", help="[default: /]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per tree.")] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Show which checkpoints were made from which.

    Draws trees of forks, rollbacks, imports and copies, with batch, time and user, including checkpoints that no
    longer exist.
    """
    from peacefs.client.command_line.session import Session
    from peacefs.spark_connector.checkpoints.commands.ancestry import show_families

    with Session("checkpoint ancestry", coordinator) as session:
        show_families(session, paths or ["/"], as_json=as_json)
    if session.errors.any:
        raise typer.Exit(1)


@checkpoint.command()
def begin(
    path: Root,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="NAME", help="Host on which the query will run. [default: this host]"),
    ] = None,
    pid: Annotated[
        int | None,
        typer.Option("--pid", metavar="N", min=0, help="The query's process id. [default: the calling process]"),
    ] = None,
    as_json: Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Begin a run and print its checkpointLocation.

    From then on, writes of earlier runs are refused.
    """
    from peacefs.client.command_line.session import Session
    from peacefs.spark_connector.checkpoints.commands.runs import begin_run_of

    with Session("checkpoint begin", coordinator) as session:
        begin_run_of(session, path, host=host, pid=pid, as_json=as_json)


@checkpoint.command()
def runs(
    paths: Annotated[list[str] | None, typer.Argument(metavar="PATH", help="[default: /]")] = None,
    as_json: Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """List the latest runs of checkpoints.

    The latest run is the one that may write to the checkpoint.
    """
    from peacefs.client.command_line.session import Session
    from peacefs.spark_connector.checkpoints.commands.runs import list_runs

    with Session("checkpoint runs", coordinator) as session:
        list_runs(session, paths or ["/"], as_json=as_json)
    if session.errors.any:
        raise typer.Exit(1)


@checkpoint.command()
def rollback(
    path: Root,
    to_batch: Annotated[
        int,
        typer.Option(
            "--to-batch", metavar="N", min=0, help="The batch that becomes the latest.", show_default=False
        ),
    ],
    with_sink: Annotated[
        str | None,
        typer.Option("--with-sink", metavar="DIR", help="Directory of a file sink; also cut back its log."),
    ] = None,
    no_file_sink: Annotated[
        bool, typer.Option("--no-file-sink", help="State that the query writes to no file sink.")
    ] = False,
    batches_may_differ: Annotated[
        bool,
        typer.Option(
            "--batches-may-differ",
            help="Accept that later batches may differ: the sink ignores batch numbers, or you undid its output.",
        ),
    ] = False,
    idle: Annotated[
        float,
        typer.Option(
            "--idle", metavar="SECONDS", min=0, help="Refuse if anything was written in the last SECONDS seconds."
        ),
    ] = checkpoint_idle_s,
    as_json: Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Make an earlier batch the latest.

    Stop the query first. The change is one commit, and the former state is kept beside it. The next batch is
    repeated as planned; later batches may differ. Only the log of a file sink is undone; other sinks are not.
    """
    from peacefs.client.command_line.session import Session
    from peacefs.spark_connector.checkpoints.commands.change import roll_back_checkpoint

    with Session("checkpoint rollback", coordinator) as session:
        roll_back_checkpoint(
            session,
            path,
            to_batch,
            sink=with_sink,
            no_file_sink=no_file_sink,
            may_differ=batches_may_differ,
            idle_s=idle,
            as_json=as_json,
        )


@checkpoint.command()
def repartition(
    path: Root,
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="The new number.", show_default=False)
    ],
    no_file_sink: Annotated[
        bool, typer.Option("--no-file-sink", help="The query writes to no file sink.")
    ] = False,
    idle: Annotated[
        float,
        typer.Option(
            "--idle", metavar="SECONDS", min=0, help="Refuse if anything was written in the last so many seconds."
        ),
    ] = checkpoint_idle_s,
    as_json: Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Change the number of partitions of the state.

    By Spark 4.2 or newer on this machine, on a copy that then takes the checkpoint's place in one step; what was
    there before is kept beside it. Finishes a repartition that was not finished. Stop the query first.
    """
    from peacefs.client.command_line.session import Session
    from peacefs.spark_connector.checkpoints.commands.repartition import repartition_checkpoint

    with Session("checkpoint repartition", coordinator) as session:
        repartition_checkpoint(session, path, partitions, no_file_sink=no_file_sink, idle_s=idle, as_json=as_json)


@checkpoint.command()
def repair(
    path: Root,
    batches_may_differ: Annotated[
        bool,
        typer.Option(
            "--batches-may-differ", help="Accept that a batch may differ: the sink ignores batch numbers."
        ),
    ] = False,
    idle: Annotated[
        float,
        typer.Option(
            "--idle", metavar="SECONDS", min=0, help="Refuse if anything was written in the last SECONDS seconds."
        ),
    ] = checkpoint_idle_s,
    as_json: Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Remove the files that keep a query from starting.

    Stop the query first. Makes only the repair that `verify` names, and keeps the removed files in a directory
    beside the checkpoint.
    """
    from peacefs.client.command_line.session import Session
    from peacefs.spark_connector.checkpoints.commands.change import repair_checkpoint

    with Session("checkpoint repair", coordinator) as session:
        repair_checkpoint(session, path, may_differ=batches_may_differ, idle_s=idle, as_json=as_json)


@checkpoint.command()
def prune(
    path: Root,
    keep_batches: Annotated[
        int | None, typer.Option("--keep-batches", metavar="N", min=1, help="Keep the latest N batches.")
    ] = None,
    keep_hours: Annotated[
        float | None,
        typer.Option("--keep-hours", metavar="H", min=0, help="Keep batches done in the last H hours."),
    ] = None,
    keep_bytes: Annotated[
        int | None, typer.Option("--keep-bytes", metavar="N", min=0, help="Keep batches up to N bytes in total.")
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the files, instead of only listing them.")
    ] = False,
    idle: Annotated[
        float,
        typer.Option(
            "--idle",
            metavar="SECONDS",
            min=0,
            help="Delete only if nothing was written in the last SECONDS seconds.",
        ),
    ] = checkpoint_idle_s,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Find files that no kept batch needs.

    Also finds orphans; --delete deletes both. Always keeps the latest batch, and earlier batches that all given
    limits allow.
    """
    import time

    from peacefs.client.command_line.session import Session
    from peacefs.spark_connector.checkpoints.commands.change import prune_checkpoint
    from peacefs.spark_connector.checkpoints.pruning import Retention

    retention = Retention(
        batches=keep_batches,
        age_ms=None if keep_hours is None else int(keep_hours * 3_600_000),
        bytes=keep_bytes,
        now_ms=int(time.time() * 1000),
        orphan_age_ms=int(checkpoint_orphan_age_s * 1000),
    )
    with Session("checkpoint prune", coordinator) as session:
        prune_checkpoint(session, path, retention, delete=delete, idle_s=idle)


@checkpoint.command()
def rehearse(
    path: Root,
    batch: Annotated[
        int | None, typer.Option("--batch", metavar="N", min=0, help="[default: the last one done]")
    ] = None,
    as_json: Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Load a batch's state with Spark's own reader.

    Shows, on this machine, that a restart could load it. Prints rows and seconds. Needs Spark and Java.
    """
    from peacefs.client.command_line.session import Session
    from peacefs.spark_connector.checkpoints.commands.rehearse import rehearse_checkpoint

    with Session("checkpoint rehearse", coordinator) as session:
        rehearse_checkpoint(session, path, batch, as_json=as_json)
