"""All commands that a client needs; `peacefs.command` adds those that start services.

Nothing heavy is imported before a command is chosen: `peacefs ls` does not load the local cluster.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import peacefs
from peacefs.protocol.errors import PeacefsError
from peacefs.runtime.tls_variables import CA_FILE_VARIABLE

from . import access_commands, cluster_commands, directory_commands, file_commands, mount_commands, token_commands
from .errors import report_error, report_system_error
from .examples import add_examples
from .options import COORDINATOR_VARIABLES

#: These commands have separate options for the traces of their services, and do not trace their own requests.
_SERVICES = ("agent", "coordinator", "datanode", "up")


#: The extra that installs each module that the base package does not need.
_EXTRAS = {
    "cloudpickle": "dataflow",
    "fsspec": "fsspec",
    "matplotlib": "picture",
    "mfusepy": "mount",
    "numba": "dataflow",
    "numpy": "dataflow",
    "opentelemetry": "tracing",
    "ortools": "flow",
    "pandas": "spark",
    "py4j": "spark",
    "pyarrow": "dataflow",
    "pyspark": "spark",
}


class Commands(TyperGroup):
    """Runs commands. Expected errors are reported in one line, without a traceback."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            add_examples(command, cmd_name)
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            try:
                return super().invoke(ctx)
            finally:
                # Flush here, whatever the exit status. A missing reader is reported here like other errors; at
                # exit it would be a warning.
                sys.stdout.flush()
        except PeacefsError as error:
            report_error(ctx.invoked_subcommand, error.message)
        except OSError as error:
            report_system_error(ctx.invoked_subcommand, error)
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            if module not in _EXTRAS:
                raise
            report_error(
                ctx.invoked_subcommand,
                f"this needs {module}, which is not installed: pip install 'peacefs[{_EXTRAS[module]}]'",
            )
        raise typer.Exit(1) from None


application = typer.Typer(
    cls=Commands,
    help="A distributed, replicated file system for stream processors that checkpoint their state.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _asking(command: Any) -> set[str]:
    """Return the commands that are clients of a coordinator, or whose subcommands are."""
    return {
        name
        for name, each in command.commands.items()
        if _asking_below(each) or any(_asking_below(one) for one in getattr(each, "commands", {}).values())
    }


def _asking_below(command: Any) -> bool:
    return any(COORDINATOR_VARIABLES[0] in (option.envvar or ()) for option in command.params)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"peacefs {peacefs.__version__}")
        raise typer.Exit


@application.callback()
def _options(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    # Not named `coordinator`: the configuration of the command of that name would be taken for its value.
    asked: Annotated[
        str | None,
        typer.Option(
            "--coordinator",
            "-c",
            metavar="URL",
            help="Address of the coordinator; the same as --coordinator after the command.",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with your token, if the cluster requires one. [env var: PEACEFS_TOKEN_FILE]",
            show_default=False,
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(
            "--ca-file",
            metavar="FILE",
            envvar=CA_FILE_VARIABLE,
            help="The CA to trust for https:// and swebhdfs://. [default: the system's CAs]",
            show_default=False,
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            metavar="DIR",
            help="Call the coordinator of this directory as its administrator, over its local socket; the same"
            " as -c unix:DIR. Only its user and root may.",
            show_default=False,
        ),
    ] = None,
    traces: Annotated[
        str | None,
        typer.Option(
            "--traces",
            metavar="URL|FILE",
            envvar="PEACEFS_TRACES",
            help="Trace the command's requests, to an OTLP collector or into a file.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Options of the program itself."""
    if traces is not None and context.invoked_subcommand not in _SERVICES:
        from peacefs.client.requests import trace_requests

        # If a program runs a command in its own process, tracing must end with the command.
        context.call_on_close(trace_requests(traces))
    # In the environment, so that processes started by the command see it too.
    if token_file is not None:
        os.environ["PEACEFS_TOKEN_FILE"] = str(token_file.absolute())
    if directory is not None:
        asked = f"unix:{directory.absolute()}"
    if asked is not None:
        if context.invoked_subcommand not in _asking(context.command):
            raise typer.BadParameter(
                f"{context.invoked_subcommand} is no client of a coordinator: leave out this option",
                param_hint="--coordinator",
            )
        for variable in COORDINATOR_VARIABLES:
            os.environ[variable] = asked
    if ca_file is not None:
        os.environ[CA_FILE_VARIABLE] = str(ca_file.absolute())


for _command in (
    cluster_commands.up,
    mount_commands.mount,
    directory_commands.prepare,
    file_commands.ls,
    file_commands.stat,
    file_commands.put,
    file_commands.get,
    file_commands.cat,
    file_commands.tail,
    file_commands.find,
    file_commands.checksum,
    file_commands.touchz,
    file_commands.mv,
    file_commands.cp,
    file_commands.rm,
    file_commands.expunge,
    file_commands.mkdir,
    directory_commands.count,
    directory_commands.du,
    directory_commands.df,
    file_commands.setrep,
    cluster_commands.fsck,
    cluster_commands.report,
    cluster_commands.schedule,
    cluster_commands.balance,
):
    application.command()(_command)
application.command("appendToFile")(file_commands.append_to_file)
application.command("test")(file_commands.ask_about_path)
# Otherwise a mode such as -x would be parsed as an option.
application.command(context_settings={"ignore_unknown_options": True})(file_commands.chmod)
application.command()(file_commands.chown)
application.command()(file_commands.chgrp)
application.command()(access_commands.setfacl)
application.command()(access_commands.getfacl)
application.command()(access_commands.setfattr)
application.command()(access_commands.getfattr)

application.add_typer(directory_commands.quotas, name="quota")
application.add_typer(directory_commands.snapshots, name="snapshot")
application.add_typer(cluster_commands.datanodes, name="datanodes")
application.add_typer(cluster_commands.chunks, name="chunk")
application.add_typer(token_commands.tokens, name="token")
