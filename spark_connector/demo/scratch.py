"""Keep a driver's temporary files in one directory, which can be removed after the driver was killed.

Spark, RocksDB's loader and Python each choose their own place, and clean up only at an orderly exit: `spark-*`,
`blockmgr-*`, `artifacts-*`, `librocksdbjni*.so`.
"""

from __future__ import annotations

import os
from pathlib import Path


def scratch_environment(directory: Path) -> dict[str, str]:
    """Create `directory`, and return variables that make a driver keep its temporary files there."""
    directory.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("SPARK_SUBMIT_OPTS", "")
    return {
        "TMPDIR": str(directory),
        "SPARK_LOCAL_DIRS": str(directory),
        # Spark's launcher passes this to the driver's JVM, after the user's own options. Java's performance
        # counters would go to /tmp regardless, so they are off.
        "SPARK_SUBMIT_OPTS": f'{given} "-Djava.io.tmpdir={directory}" -XX:-UsePerfData'.strip(),
    }
