"""What an agent starts for a dataflow: fetch the program from the query's directory, and become it.

`python -m peacefs.dataflow.programs.start_app FILE [ARGUMENT]...`, where FILE is named by the SHA-256 of its
contents.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Final

from peacefs.client.control.addresses import split_uri
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import BadRequest, PeacefsError, StartupError

#: The directory of programs in the directory of a query.
PROGRAMS = "programs"
dataflow_program_bytes_max: Final = 1024 * 1024


def name_of_program(contents: bytes) -> str:
    """Return the name under which a program is stored."""
    return f"{hashlib.sha256(contents).hexdigest()}.py"


def main(arguments: list[str]) -> None:
    """Replace this process by the program. Exits with status 1 and one line if that is not possible."""
    try:
        program = _fetched(arguments[0] if arguments else "")
        os.execv(sys.executable, [sys.executable, str(program), *arguments[1:]])
    except (PeacefsError, OSError) as fault:
        sys.exit(f"the program cannot be started: {fault}")


def _fetched(name: str) -> Path:
    root = os.environ.get("PEACEFS_CHECKPOINT_ROOT")
    if not root or "/" in name or not name:
        raise BadRequest("agents start this with the query's directory and the name of its program")
    _, directory = split_uri(root)
    with PeaceFileSystem(os.environ["PEACEFS_COORDINATOR"]) as files:
        contents = files.read(f"{directory}/{PROGRAMS}/{name}")
    if name_of_program(contents) != name:
        raise StartupError(f"{directory}/{PROGRAMS}/{name} was changed: hand the program to the cluster again")
    program = Path.home() / f"dataflow-{os.environ['PEACEFS_QUERY']}" / name
    program.parent.mkdir(mode=0o700, exist_ok=True)
    program.write_bytes(contents)
    return program


if __name__ == "__main__":
    main(sys.argv[1:])
