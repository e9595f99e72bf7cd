"""The command `peacefs`: clients' commands (`client.command_line`), and commands that start services.

Commands in this folder may import every package, but each imports what it needs only when it runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command, get_command_name

from peacefs.client.command_line.application import application
from peacefs.client.command_line.errors import report_error, report_system_error
from peacefs.client.command_line.standard_streams import ReaderGone, prepare_standard_streams
from peacefs.commands import configuration
from peacefs.commands.certificate_commands import certificates
from peacefs.commands.checkpoint_commands import checkpoint
from peacefs.commands.completion_command import COMPLETION_VARIABLE, completion, prepare_completion
from peacefs.commands.config_commands import config
from peacefs.commands.dataflow_commands import dataflow
from peacefs.commands.doctor_command import doctor
from peacefs.commands.metadata_commands import metadata
from peacefs.commands.placement_commands import plan, simulate, topology
from peacefs.commands.service_commands import coordinator, datanode
from peacefs.commands.spark_commands import spark
from peacefs.commands.stream_commands import stream
from peacefs.commands.supervision_commands import agent, supervise
from peacefs.commands.trace_command import trace


def demo(
    log: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="An sshd log. [default: the demo's own]")
    ] = None,
    batches: Annotated[int, typer.Option("--batches", help="Number of batches into which the log is cut.")] = 12,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Working directory. [default: a temporary directory]"),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep all files in the working directory.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the report, as JSON, to stdout.")] = False,
) -> None:
    """See a Spark query survive what it should."""
    from peacefs.spark_connector.demo.app import DemoOptions, run_demo

    options = DemoOptions(input=log, batches=batches, directory=directory, keep=keep, json=as_json)
    raise typer.Exit(run_demo(options))


for _command in (datanode, agent, supervise, doctor, trace, demo, simulate, plan, completion):
    application.command()(_command)
application.add_typer(coordinator, name="coordinator")
application.add_typer(certificates, name="certificates")
application.add_typer(config, name="config")
application.add_typer(metadata, name="metadata")
application.add_typer(checkpoint, name="checkpoint")
application.add_typer(spark, name="spark")
application.add_typer(stream, name="stream")
application.add_typer(dataflow, name="dataflow")
application.add_typer(topology, name="topology")


def _keep_only(name: str) -> None:
    """Drop the other commands if one has this name: declaring all of them takes time."""
    if name == "config":
        return  # it prints options of all commands
    commands = [known for known in application.registered_commands if _name_of(known) == name]
    groups = [known for known in application.registered_groups if known.name == name]
    if commands or groups:
        application.registered_commands, application.registered_groups = commands, groups


def _name_of(command: typer.models.CommandInfo) -> str:
    return command.name or get_command_name(getattr(command.callback, "__name__", ""))


def main() -> None:
    """Run the command.

    Exit status: 0; 1 for faults, 2 for wrong usage, 130 after Ctrl-C, 141 after SIGPIPE.
    """
    prepare_standard_streams()
    _keep_only("".join(sys.argv[1:2]))
    try:
        command = get_command(application)
        if COMPLETION_VARIABLE in os.environ:
            prepare_completion()
            command(prog_name="peacefs")
        configured = configuration.apply(command)
        for mistake in configured.mistakes:
            report_error("", mistake)
        if configured.mistakes:
            sys.exit(2)
        command(prog_name="peacefs", default_map=configured.defaults)
    except OSError as error:
        report_system_error("", error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except ReaderGone:
        sys.exit(128 + signal.SIGPIPE)
    finally:
        # The failed write was reported already. Python would retry it at exit and print two more lines.
        with contextlib.suppress(OSError, ReaderGone):
            sys.stdout.close()
