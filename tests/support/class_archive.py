"""Spark's classes in an archive that the JVMs of all tests share (class-data sharing, JEP 350).

Each JVM with Spark loads, parses and links some 25,000 classes, which is a third of its processor time. The first
test that needs a JVM makes the archive while others wait; later runs reuse it. The archive fits one Java and one
set of jars; a JVM with others ignores it. If Java cannot make an archive, tests only take longer.

`python -m support.class_archive` makes the archive in advance. With a file name, this module is the program whose
classes are archived: a session, batches with state, and Hadoop's clients.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from support import java_classes
from support.java_options import add_classes, add_options, set_options

from peacefs.spark_connector.java import JavaRuntime, find_java, java_environment

#: Keep the JVM from printing warnings about an unused archive into output that tests read.
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_OPTIONS = "SPARK_SUBMIT_OPTS"
_TRAINING_S = 280
_JVM_ENDS_S = 120
#: The archive's directory: its name in pytest's cache, and its path.
DIRECTORY = "spark-classes"
_KEPT = Path(__file__).parents[2] / ".pytest_cache/d" / DIRECTORY
#: Classes that WebHDFS needs besides Spark's.
_HADOOP = ("org.apache.hadoop.hdfs.web.WebHdfsFileSystem", "org.apache.hadoop.hdfs.web.SWebHdfsFileSystem")


def share_classes(directory: Path) -> None:
    """Have JVMs of this process and its children share the archive in `directory`; the first caller makes it."""
    java = find_java()
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        archive = directory / f"{_fingerprint(java)}.jsa"
        classes, tried = archive.with_suffix(".jar"), archive.with_suffix(".log")
        is_tried = tried.exists()
        if not is_tried:
            for old in [path for kind in ("jsa", "jar", "log") for path in directory.glob(f"*.{kind}")]:
                old.unlink()
            _run("support.java_classes", classes, tried, java)
        if classes.exists():
            add_classes(classes)
        if not is_tried:
            _run("support.class_archive", archive, tried, java)
    if archive.exists():
        add_options(f"{_SILENT} -XX:SharedArchiveFile={shlex.quote(str(archive))}")


def _fingerprint(java: JavaRuntime) -> str:
    """Return everything that a JVM compares before it uses an archive, and the version of the compiled classes."""
    import pyspark

    jars = sorted((Path(pyspark.__file__).parent / "jars").iterdir())
    told = subprocess.run([java.executable, "-version"], capture_output=True, check=True).stderr
    files = [(jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars]
    sources = [source.read_text() for source in (*java_classes.SOURCES, Path(java_classes.__file__))]
    return hashlib.sha256(repr((str(java.home), told, jars[0].parent, files, sources)).encode()).hexdigest()[:16]


def _run(module: str, made: Path, log: Path, java: JavaRuntime) -> None:
    """Run a program that makes a file under a temporary name, and rename the file if it succeeds."""
    with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
        unfinished = Path(scratch, "unfinished")
        environment = {
            **os.environ,
            **java_environment(java, Path(scratch, "java")),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(("tests", ".")),
            "TMPDIR": scratch,
        }
        with log.open("a") as output:
            subprocess.run(
                [sys.executable, "-m", module, str(unfinished)],
                cwd=Path(__file__).parents[2],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_TRAINING_S,
                check=False,
            )
        if unfinished.exists():
            unfinished.rename(made)


def _train(archive: Path) -> None:
    """Load the classes that tests load, and exit normally: the JVM writes the archive at exit."""
    os.environ[_OPTIONS] += f" -XX:ArchiveClassesAtExit={shlex.quote(str(archive))}"
    scratch = archive.parent
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from peacefs.spark_connector.session import configure

    spark = (
        configure(SparkSession.builder, "127.0.0.1:9870")
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    (scratch / "input").mkdir()
    (scratch / "input" / "words").write_text("one\ntwo\ntwo\n")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{scratch}/input")
    counts = lines.groupBy("value").count().writeStream.outputMode("complete")
    for sink in (
        counts.foreachBatch(lambda rows, _batch: rows.show()).option("checkpointLocation", f"{scratch}/counts"),
        lines.writeStream.format("parquet")
        .option("checkpointLocation", f"{scratch}/lines")
        .option("path", f"{scratch}/out"),
    ):
        sink.trigger(availableNow=True).start().awaitTermination()
    spark.read.parquet(f"{scratch}/out").collect()
    gateway = SparkContext._gateway
    assert gateway is not None
    for name in _HADOOP:
        gateway.jvm.java.lang.Class.forName(name)
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_JVM_ENDS_S)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _train(Path(sys.argv[1]))
    else:
        set_options()
        _KEPT.mkdir(parents=True, exist_ok=True)
        share_classes(_KEPT)
