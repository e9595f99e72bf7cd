"""HDFS from Maven's artifacts: a NameNode and DataNodes as separate processes, and HDFS's client in a JVM."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from xml.sax.saxutils import escape

from .load import Done, Work
from .processes import running_process

_HERE = Path(__file__).parent
_HOST = "127.0.0.1"
_NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_LOGGING = """
log4j.rootLogger=ERROR, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c: %m%n
"""
_ANY_PORT = f"{_HOST}:0"
_JVM = ("-Djava.net.preferIPv4Stack=true", "-Xmx1g")


class NoHadoop(Exception):
    """HDFS, or a program needed to download it, is missing."""


@dataclass(frozen=True)
class HdfsCluster:
    """A running HDFS cluster."""

    uri: str
    servers: Sequence[int]


def hadoop_classpath(build: Path) -> str:
    """Download Hadoop's jars with Maven if needed, and return their class path. Raises NoHadoop."""
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        raise NoHadoop("Maven and a JDK are not installed")
    build.mkdir(parents=True)
    listed = build / "classpath"
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={listed}"]
    command = [maven, "--batch-mode", "--quiet", "--file", str(_HERE / "java" / "pom.xml"), *goal]
    if subprocess.run(command, check=False).returncode:
        raise NoHadoop("Maven did not get its artifacts, and says why above")
    (build / "log4j.properties").write_text(_LOGGING)
    # Servers need a directory for web pages, which the artifacts lack, to start.
    for role in ("hdfs", "datanode"):
        (build / "webapps" / role).mkdir(parents=True)
    return f"{build}:{listed.read_text().strip()}"


@contextmanager
def running_hdfs(classpath: str, directory: Path, datanodes: int) -> Iterator[HdfsCluster]:
    """Yield a starting cluster on loopback. `HadoopLoad` waits until it is ready."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        uri = f"hdfs://{_HOST}:{probe.getsockname()[1]}"
    with ExitStack() as stack:
        names = _home(directory / "names", uri)
        command = ["java", *_JVM, "-cp", f"{names}:{classpath}"]
        subprocess.run(
            [*command, _NAME_NODE, "-format", "-nonInteractive"], cwd=names, check=True, capture_output=True
        )
        servers = [stack.enter_context(running_process([*command, _NAME_NODE], names)).pid]
        for number in range(datanodes):
            home = _home(directory / f"data-{number}", uri)
            command = ["java", *_JVM, "-cp", f"{home}:{classpath}", _DATA_NODE]
            servers.append(stack.enter_context(running_process(command, home)).pid)
        yield HdfsCluster(uri, servers)


def _home(home: Path, uri: str) -> Path:
    """Make a server's directory with Hadoop's default settings, except for addresses and directories."""
    home.mkdir(parents=True)
    core = {"fs.defaultFS": uri, "hadoop.tmp.dir": str(home / "tmp")}
    hdfs = {
        "dfs.namenode.name.dir": f"file://{home}/name",
        "dfs.namenode.http-address": _ANY_PORT,
        "dfs.datanode.data.dir": f"file://{home}/blocks",
        "dfs.datanode.address": _ANY_PORT,
        "dfs.datanode.http.address": _ANY_PORT,
        "dfs.datanode.ipc.address": _ANY_PORT,
        "dfs.datanode.hostname": _HOST,
    }
    for name, settings in (("core-site", core), ("hdfs-site", hdfs)):
        properties = "".join(
            f"<property><name>{key}</name><value>{escape(value)}</value></property>"
            for key, value in settings.items()
        )
        (home / f"{name}.xml").write_text(f"<configuration>{properties}</configuration>")
    return home


class HadoopLoad:
    """Threads of one JVM, each with a Hadoop client. With `sync`, a block is synced before it is closed."""

    def __init__(self, classpath: str, uri: str, datanodes: int, *, sync: bool) -> None:
        source = _HERE / "java" / "HadoopLoad.java"
        arguments = [uri, str(datanodes), "sync" if sync else "default"]
        self._process = subprocess.Popen(
            ["java", *_JVM, "-cp", classpath, str(source), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer("ready")

    def run(self, work: Work) -> Done:
        assert self._process.stdin is not None
        words = (work.operation, work.clients, work.seconds, work.times, work.mebibytes)
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        times, seconds = self._answer("done")
        return Done(int(times), float(seconds))

    def _answer(self, expected: str) -> list[str]:
        assert self._process.stdout is not None
        word, *rest = self._process.stdout.readline().split() or [""]
        if word != expected:
            raise RuntimeError("Hadoop's client has failed, and says why above")
        return rest

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_reason: object) -> None:
        self.close()
