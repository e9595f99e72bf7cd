"""Keep a driver's temporary files where they can be removed after it was killed.

Spark, RocksDB's loader and Python each choose a place of their own, and remove what they put there only when they
end in good order: `spark-*`, `blockmgr-*`, `artifacts-*`, `librocksdbjni*.so`.
"""

from __future__ import annotations

import os
from pathlib import Path


def scratch_environment(directory: Path) -> dict[str, str]:
    """The variables under which a driver keeps them in `directory`, which this makes; its owner removes it."""
    directory.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("SPARK_SUBMIT_OPTS", "")
    return {
        "TMPDIR": str(directory),
        "SPARK_LOCAL_DIRS": str(directory),
        # Read by Spark's launcher for the driver's JVM; what the user gives it stays. Java's own counters go to
        # /tmp whatever it is told.
        "SPARK_SUBMIT_OPTS": f'{given} "-Djava.io.tmpdir={directory}" -XX:-UsePerfData'.strip(),
    }
