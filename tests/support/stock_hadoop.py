"""The Hadoop client that PySpark bundles, unchanged, in a JVM without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j import java_gateway
from py4j import protocol as py4j_protocol
from pyspark import java_gateway as pyspark_gateway

from peacefs.spark_connector.java import find_java, java_environment


class Hadoop:
    """A JVM with Hadoop's classes, and its clients for one cluster."""

    def __init__(self, gateway: Any, uri: str, settings: Mapping[str, str]) -> None:
        self.gateway = gateway
        self.jvm = self.gateway.jvm
        self.fs_package = self.jvm.org.apache.hadoop.fs
        self.conf = self.jvm.org.apache.hadoop.conf.Configuration()
        for name, value in settings.items():
            self.conf.set(name, value)
        self.uri = self.jvm.java.net.URI(uri)
        self.fs = self.fs_package.FileSystem.get(self.uri, self.conf)
        self.context = self.fs_package.FileContext.getFileContext(self.uri, self.conf)
        checkpointing = self.jvm.org.apache.spark.sql.execution.streaming.checkpointing
        self.checkpoints = checkpointing.FileContextBasedCheckpointFileManager(self.path("/"), self.conf)

    def path(self, name: str) -> Any:
        return self.fs_package.Path(self.uri.toString() + name)

    def write(self, name: str, data: bytes, overwrite: bool = True) -> None:
        stream = self.fs.create(self.path(name), overwrite)
        stream.write(data)
        stream.close()

    def write_from(self, name: str, source: Path) -> None:
        """Write a local file to the cluster. Java reads the file itself."""
        local = self.jvm.java.io.FileInputStream(str(source))
        stream = self.fs.create(self.path(name), True)
        self.jvm.org.apache.hadoop.io.IOUtils.copyBytes(local, stream, self.conf, True)

    def read(self, name: str, offset: int = 0) -> bytes:
        stream = self.fs.open(self.path(name))
        try:
            stream.seek(offset)
            return bytes(self.jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def rename(self, source: str, target: str, *options: str) -> None:
        kind = getattr(self.fs_package, "Options$Rename")
        array = self.array(kind, *(getattr(kind, option) for option in options))
        self.context.rename(self.path(source), self.path(target), array)

    def array(self, kind: Any, *values: Any) -> Any:
        array = self.gateway.new_array(kind, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def names(self, directory: str) -> list[str]:
        return [status.getPath().getName() for status in self.fs.listStatus(self.path(directory))]

    def exists(self, name: str) -> bool:
        return bool(self.fs.exists(self.path(name)))


@contextmanager
def running_gateway(java_directory: Path) -> Iterator[Any]:
    """Run a JVM with Hadoop's classes within the block."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in java_environment(find_java(), java_directory).items():
            patch.setenv(name, value)
        gateway = pyspark_gateway.launch_gateway()  # type: ignore[no-untyped-call]
    try:
        yield gateway
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(20)


@contextmanager
def exceptions_of_hadoop() -> Iterator[None]:
    """Make py4j report our JVM's exceptions. After a Spark session, it asks that session's JVM."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(java_gateway, "get_return_value", py4j_protocol.get_return_value)
        yield


@contextmanager
def running_hadoop(gateway: Any, uri: str, settings: Mapping[str, str] | None = None) -> Iterator[Hadoop]:
    """Run Hadoop's client within the block. `settings` are Hadoop's, without Spark's prefix."""
    with exceptions_of_hadoop():
        hadoop = Hadoop(gateway, uri, settings or {})
        yield hadoop
        hadoop.fs.close()
