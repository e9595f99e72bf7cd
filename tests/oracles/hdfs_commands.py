"""Commands of `hdfs dfs`, with exit status and output recorded from Hadoop 3.5 with a real HDFS.

`python -m contract.record_commands` in `tests` runs them against a NameNode with three DataNodes, and writes
`hdfs_commands.json`. Knows nothing of peacefs.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

RECORDED = Path(__file__).with_suffix(".json")

#: One command per line, in order. `{local}` is a local directory, in which all commands run.
COMMANDS = """
-mkdir -p /r/tree/below/deep /r/empty
-put {local}/small {local}/large /r
-put {local}/small /r/tree/below/part-1
-put {local}/empty /r/tree/Part-2
-touchz /r/new
-touchz /r/new
-touchz /r/small
-touchz /r/none/x
-touchz /r/tree
-touchz /r/one /r/two
-test -z /r/two
-ls -d /r
-ls -d /r/small /r/tree
-ls -d /r/*
-ls -d /r/none
-ls -C -d /r/tree
-find /r
-find /r -name part-*
-find /r -iname part-*
-find /r -name part-* -o -name small
-find /r/tree -name below -print
-find /r/tree/below /r/empty
-find /r -name nothing
-find /none
-find /none /r/empty
-find /r/tr* -name [Pp]art-?
-find /r/small
-find /r/tree -name Part-2 -a -name Part*
-find /r/tree -name below -name other
-find /r/tree -print -name below
-find /r/tree -type f
-df
-df /
-df -h /
-df /r/small
-df /none
-checksum /r/small
-checksum /r/large
-checksum /r/new
-checksum /r/tree
-checksum /r/none
-checksum /r/small /r/none /r/tree/below/part-1
-appendToFile {local}/small /r/small
-cat /r/small
-appendToFile {local}/small {local}/small /r/joined
-cat /r/joined
-appendToFile {local}/none /r/small
-appendToFile {local}/small /r/tree
-appendToFile {local}/small /r/none/x
-appendToFile {local}/empty /r/joined
-appendToFile {local}/tree /r/joined
-cat /r/joined
-setrep -w 2 /r/small
-setrep -w 1 /r/tree
-setrep -R 2 /r/tree
-setrep -w 2 /r/none
-setrep -R -w 2 /r/empty
-get /r/small -
-get /r/small /r/joined -
-get /r/tree -
-get /r/none -
-get /r/joined
-get /r/joined
-get -f /r/joined
-get /r/none
-get /r/tree
-rm -skipTrash /r/one
-rm -skipTrash /r/none
-rm -f -skipTrash /r/none
-rm -r -skipTrash /r/tree
-rm -skipTrash /r/empty
"""


def commands() -> list[list[str]]:
    """Return the words of each command."""
    return [shlex.split(line) for line in COMMANDS.splitlines() if line]


def recorded() -> dict[str, str]:
    """Return for each command `status N` and indented lines of output: stdout, then stderr."""
    outcomes: dict[str, str] = json.loads(RECORDED.read_text())
    return outcomes
