"""Options of the JVMs that tests start: drivers, Spark's executors, and the JVM that makes up command lines."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

#: A test's JVM runs for seconds. The optimising compiler would cost more time than it saves, and Spark's classes
#: need no verification. A second compiler or a small young generation does not pay either.
_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:CICompilerCount=1 -XX:+UseSerialGC -Xmn300m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -Djdk.lang.Process.launchMechanism=VFORK"
)
#: For the short-lived JVM that builds each command line.
_LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
#: Interpret plans: for tests' few rows, compiling them to Java takes longer.
CODEGEN = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
_SPARK = {
    # Let an idle query poll for input ten times a second, not a hundred times.
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
#: Settings by which Hadoop finds the classes of `local_files.java`.
_LOCAL_FILES = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.local.FilesWithoutProcesses",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.FileContextWithoutProcesses",
}
_BEFORE_SPARK = "spark.driver.extraClassPath"
_VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "PYSPARK_SUBMIT_ARGS")


def set_options() -> None:
    """Give options to all JVMs of this process and its children. Options of the tests' user take precedence."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _OPTIONS)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER_OPTIONS)
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", submit_arguments())


def add_options(options: str) -> None:
    """Give further options to those whose options are already set."""
    before = submit_arguments()
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {options}".strip()
    if os.environ.get("PYSPARK_SUBMIT_ARGS") == before:
        os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments()


def add_classes(jar: Path) -> None:
    """Put the classes compiled by `java_classes` before those of every Spark."""
    before = submit_arguments()
    _SPARK.update({_BEFORE_SPARK: str(jar), "spark.executor.extraClassPath": str(jar)} | _LOCAL_FILES)
    if os.environ.get("PYSPARK_SUBMIT_ARGS") == before:
        os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments()


def class_path(*own: str) -> str:
    """Return a class path that begins as that of JVMs with a Spark, so that it can share their archive."""
    return os.pathsep.join(filter(None, (_SPARK.get(_BEFORE_SPARK), *own)))


def given_options() -> dict[str, str]:
    """Return the variables with the options, for a process that does not inherit this one's."""
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


def submit_arguments(*own: str) -> str:
    """Return the tests' PYSPARK_SUBMIT_ARGS, with further arguments."""
    settings = _SPARK | {"spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", "")}
    told = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    return shlex.join([*told, *own, "pyspark-shell"])
