"""Warm the driver of a standby while it waits, so that its first batch does not pay for a cold JVM.

In the first batch of a session Spark compiles code, loads classes and native libraries, and opens connections. A
small stateful query does all of that ahead, with made-up rows and a checkpoint in a local directory. The query's
own checkpoint is listed, and its last files are read, through the session's file system.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

standby_warm_batches: Final = 3
standby_warm_files_max: Final = 8


log = logging.getLogger("peacefs.spark")

_BATCH_S = 1.0
_READ_AHEAD = ("metadata", "offsets", "commits", "state/0/0", "state/0/1")


@contextlib.contextmanager
def kept_warm(root: str) -> Iterator[None]:
    """Warm the active session, if there is one, in the background. Leaving the context does not wait."""
    session = _active_session()
    if session is None:
        yield
        return
    over = threading.Event()
    warming = threading.Thread(target=_warm, args=(session, root, over), name="standby-warmth", daemon=True)
    warming.start()
    try:
        yield
    finally:
        over.set()


def _active_session() -> SparkSession | None:
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _warm(session: SparkSession, root: str, over: threading.Event) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="peacefs-standby-"))
    try:
        _read_checkpoint(session, root, over)
        _run_batches(session, scratch, over)
    except Exception as fault:
        # The standby still works; it only starts colder.
        log.warning(
            "the standby could not warm up its session: %s", str(fault).splitlines()[0] if str(fault) else fault
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _read_checkpoint(session: SparkSession, root: str, over: threading.Event) -> None:
    """List and read through the JVM's file system, which loads its classes and opens its connections."""
    jvm: Any = session.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(root)
    files = path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())
    for name in _READ_AHEAD:
        below = jvm.org.apache.hadoop.fs.Path(path, name)
        if over.is_set() or not files.exists(below):
            continue
        found = sorted(files.listStatus(below), key=lambda each: each.getModificationTime())
        for status in found[-standby_warm_files_max:]:
            if status.isFile() and not over.is_set():
                with contextlib.closing(files.open(status.getPath())) as stream:
                    jvm.org.apache.commons.io.IOUtils.toByteArray(stream)


def _run_batches(session: SparkSession, scratch: Path, over: threading.Event) -> None:
    rows = session.readStream.format("rate").option("rowsPerSecond", 100).load()
    counts = rows.selectExpr("cast(value % 7 AS string) AS key").groupBy("key").count()
    writing = (
        counts.writeStream.format("noop")
        .outputMode("complete")
        .queryName("peacefs-standby-warmth")
        .option("checkpointLocation", (scratch / "checkpoint").as_uri())
        .trigger(processingTime=f"{_BATCH_S:g} seconds")
        .start()
    )
    try:
        while not over.wait(0.05) and writing.isActive:
            progress = writing.lastProgress
            if progress is not None and progress["batchId"] >= standby_warm_batches:
                break
    finally:
        writing.stop()
