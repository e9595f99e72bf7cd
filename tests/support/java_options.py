"""Options of the JVMs that tests start: drivers, Spark's executors, and the JVM that makes up command lines."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

#: A JVM of a test runs for seconds: the optimising compiler would take more processor time than it saves, and
#: Spark's classes need no verification each time. Nor does a second compiler pay, or a small young generation.
_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:CICompilerCount=1 -XX:+UseSerialGC -Xmn300m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -Djdk.lang.Process.launchMechanism=VFORK"
)
#: Another JVM makes up the command line of each: it runs for a moment.
_LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
#: A user's Spark compiles each plan to Java, which takes tests longer than to interpret it for their few rows.
CODEGEN = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
_SPARK = {
    # A query that has nothing to do looks for input ten times a second, not a hundred times.
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
#: The settings by which Hadoop finds the classes of `local_files.java`.
_LOCAL_FILES = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.local.FilesWithoutProcesses",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.FileContextWithoutProcesses",
}
_BEFORE_SPARK = "spark.driver.extraClassPath"
_VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "PYSPARK_SUBMIT_ARGS")


def set_options() -> None:
    """Give options to all JVMs of this process and its children; those of whoever runs the tests win."""
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
    """Put the classes that `java_classes` has compiled before those of every Spark that is started."""
    before = submit_arguments()
    _SPARK.update({_BEFORE_SPARK: str(jar), "spark.executor.extraClassPath": str(jar)} | _LOCAL_FILES)
    if os.environ.get("PYSPARK_SUBMIT_ARGS") == before:
        os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments()


def class_path(*own: str) -> str:
    """Return a class path with that before it which JVMs with a Spark have, for one that shares their archive."""
    return os.pathsep.join(filter(None, (_SPARK.get(_BEFORE_SPARK), *own)))


def given_options() -> dict[str, str]:
    """Return the variables with the options, for a process that does not have those of this one."""
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


def submit_arguments(*own: str) -> str:
    """Return what PYSPARK_SUBMIT_ARGS is in tests, with arguments of a test's own."""
    settings = _SPARK | {"spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", "")}
    told = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    return shlex.join([*told, *own, "pyspark-shell"])
