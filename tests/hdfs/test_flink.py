"""Flink with checkpoints and its file sink on `hdfs://` is exact while it and a datanode are killed."""

from __future__ import annotations

import random
import shutil
import subprocess
from importlib.resources import files as package_files
from pathlib import Path

import pytest
from support.long_runs import IS_LONG
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

_SOURCES = Path(__file__).parent / "flink"
_NUMBERS, _PER_SECOND = 10_000, 500
_KILLS = 2
_FINISH_TIMEOUT_S = 240.0
_OPENED = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in ("java.lang", "java.util", "java.time")]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not IS_LONG or shutil.which("mvn") is None,
        reason="Flink's jars and a minute of kills: PEACEFS_LONG=1, Maven and a JDK",
    ),
]


def _class_path(directory: Path) -> str:
    listed = directory / "classpath"
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={listed}"]
    subprocess.run(["mvn", "--batch-mode", "--quiet", f"--file={_SOURCES / 'pom.xml'}", *goal], check=True)
    # Hadoop's client is PySpark's.
    hadoop = [str(each) for each in Path(str(package_files("pyspark") / "jars")).glob("hadoop-client-*.jar")]
    jars = ":".join([*hadoop, listed.read_text().strip()])
    subprocess.run(
        ["javac", "-nowarn", "-d", str(directory), "-cp", jars, str(_SOURCES / "NumbersToFiles.java")], check=True
    )
    return f"{directory}:{jars}"


class _Job:
    """Flink in one JVM, started again from its last checkpoint after each kill."""

    def __init__(self, directory: Path, uri: str, files: PeaceFileSystem) -> None:
        self._class_path = _class_path(directory)
        self._log = directory / "flink.log"
        self._uri = uri
        self._files = files

    def start(self) -> subprocess.Popen[bytes]:
        last = self.last_checkpoint()
        arguments = [
            f"{self._uri}/flink",
            str(_NUMBERS),
            str(_PER_SECOND),
            f"{self._uri}{last}" if last else "new",
        ]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                ["java", "-Xmx512m", *_OPENED, "-cp", self._class_path, "NumbersToFiles", *arguments],
                stdout=log,
                stderr=log,
            )

    def said(self) -> str:
        return self._log.read_text()

    def last_checkpoint(self) -> str | None:
        """Return the newest complete checkpoint of the newest run."""
        if not self._files.exists("/flink/checkpoints"):
            return None
        whole = [
            (self._files.status(metadata).modified_ms, metadata.rpartition("/")[0])
            for run in self._files.list("/flink/checkpoints")
            for each in self._files.list(f"/flink/checkpoints/{run.name}")
            if self._files.exists(metadata := f"/flink/checkpoints/{run.name}/{each.name}/_metadata")
        ]
        return max(whole)[1] if whole else None


def test_file_sink_of_flink_is_exact_while_everything_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    (tmp_path / "flink").mkdir()
    with (
        LocalCluster(tmp_path / "cluster", datanodes=4, port=0) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        job = _Job(tmp_path / "flink", cluster.hdfs_uri, files)
        for kill in range(_KILLS):
            before, running = job.last_checkpoint(), job.start()
            try:
                wait_until(
                    lambda before=before, running=running: (
                        running.poll() is not None or job.last_checkpoint() != before
                    ),
                    "Flink makes checkpoints",
                )
                if kill:
                    member = chance.choice(cluster.datanodes)
                    member.kill()
                    cluster.restart(member)
                last = job.last_checkpoint()
                wait_until(
                    lambda last=last, running=running: running.poll() is not None or job.last_checkpoint() != last,
                    "Flink makes another checkpoint",
                )
                assert running.poll() is None, job.said()
            finally:
                running.kill()
                running.wait()
        with job.start() as running:
            try:
                assert running.wait(_FINISH_TIMEOUT_S) == 0, job.said()
            finally:
                running.kill()
        parts = [
            f"/flink/sink/{bucket.name}/{part.name}"
            for bucket in files.list("/flink/sink")
            for part in files.list(f"/flink/sink/{bucket.name}")
            # A file that was in progress at a kill stays behind under a hidden name.
            if not part.name.startswith(".")
        ]
        lines = b"".join(files.read(part) for part in parts).decode().splitlines()
    assert len(parts) >= 2
    assert sorted(lines) == sorted(f"{number} of key {number % 10}" for number in range(_NUMBERS))
