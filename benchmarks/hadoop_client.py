"""Hadoop's own client, from PySpark's jars, in a JVM: the client that Spark uses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from peacefs.spark_connector.java import find_java


class HadoopFiles:
    """One Hadoop FileSystem with Hadoop's default settings. Each calling thread has a thread in the JVM.

    Written data, `file_bytes` of it, and read data stay in the JVM.
    """

    def __init__(self, gateway: JavaGateway, root_uri: str, file_bytes: int) -> None:
        jvm = gateway.jvm
        self._root = root_uri
        self._path = jvm.org.apache.hadoop.fs.Path
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        self._files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(jvm.java.net.URI(root_uri), configuration)
        self._data = gateway.new_array(jvm.byte, file_bytes)
        self._nowhere = jvm.java.io.OutputStream.nullOutputStream()

    def mkdirs(self, path: str) -> None:
        assert self._files.mkdirs(self._of(path))

    def write(self, path: str) -> None:
        output = self._files.create(self._of(path), True)
        output.write(self._data)
        output.close()

    def rename(self, source: str, target: str) -> None:
        assert self._files.rename(self._of(source), self._of(target))

    def read(self, path: str) -> int:
        opened = self._files.open(self._of(path))
        try:
            length: int = opened.transferTo(self._nowhere)
        finally:
            opened.close()
        return length

    def look(self, path: str) -> None:
        self._files.getFileStatus(self._of(path))

    def delete(self, path: str) -> None:
        assert self._files.delete(self._of(path), False)

    def _of(self, path: str) -> Any:
        return self._path(self._root + path)


@contextlib.contextmanager
def hadoop_jvm(directory: Path) -> Iterator[JavaGateway]:
    """Run a JVM with Hadoop's classes during the context. Its temporary files go into `directory`."""
    options = [f"-Djava.io.tmpdir={directory}", "-Dlog4j2.level=ERROR"]
    port = launch_gateway(
        classpath=str(files("pyspark") / "jars" / "*"),
        java_path=str(find_java().executable),
        javaopts=options,
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield gateway
    finally:
        gateway.shutdown()
