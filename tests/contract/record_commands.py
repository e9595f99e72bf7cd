"""Record the output of `hdfs dfs` with a real HDFS: `python -m contract.record_commands`, in `tests`.

Needs Maven and a JDK, like `make contract`.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from oracles import hdfs_commands

from .clusters import running_hdfs
from .shell import run_shell
from .toolchain import Toolchain

_BUILD = Path(__file__).parent.parent.parent / "build" / "contract"


def main() -> None:
    toolchain = Toolchain(_BUILD)
    toolchain.prepare()
    with tempfile.TemporaryDirectory(prefix="peacefs-contract-") as made:
        scratch = Path(made)
        with running_hdfs(toolchain, scratch / "namenode") as uris:
            answers = run_shell(
                toolchain, uris["webhdfs"], uris["webhdfs"], "recorded", scratch / "shell", hdfs_commands.COMMANDS
            )
    hdfs_commands.RECORDED.write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
