"""Run a datanode whose disk is limited by a curve: `slow_datanode --disk=1=30e6,2=45e6 ...`.

It takes the options of `peacefs datanode` that experiments need, and announces itself in the same way.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from peacefs.datanode.options import DatanodeOptions
from peacefs.datanode.process import run
from peacefs.datanode.store.interface import ChunkIntake
from peacefs.protocol.errors import PeacefsError
from peacefs.service.trace_options import TraceOptions

from .throttled_disk import DiskArm, EmulatedDisk, parse_curve


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slow_datanode", description=__doc__)
    parser.add_argument("--disk", required=True, metavar="N=RATE,...")
    parser.add_argument("--dir", required=True, type=Path)
    parser.add_argument("--coordinator", required=True, metavar="HOST:PORT")
    parser.add_argument("--secret-file", required=True, type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--rack", default="/default-rack")
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--parent-fd", type=int)
    parser.add_argument("--traces", help="a file or a collector, as of `peacefs datanode`")
    return parser


def main(arguments: list[str]) -> None:
    """Serve until told to stop."""
    given = _parser().parse_args(arguments)
    host, _, port = given.coordinator.rpartition(":")
    options = DatanodeOptions(
        directory=given.dir,
        coordinator=(host, int(port)),
        host=given.host,
        http_port=0,
        data_port=0,
        rack=given.rack,
        secret_file=given.secret_file,
        no_tls=True,
        scrub_period_s=0.0,
        ready_fd=given.ready_fd,
        parent_fd=given.parent_fd,
        traces=None if given.traces is None else TraceOptions(given.traces),
    )
    try:
        arm = DiskArm(parse_curve(given.disk))

        def pace(store: ChunkIntake) -> ChunkIntake:
            return EmulatedDisk(store, arm)

        run(options, pace)
    except PeacefsError as error:
        raise SystemExit(f"slow_datanode: {error.message}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
