"""PyArrow's `HadoopFileSystem`, which calls Hadoop's Java client through libhdfs, beside our own client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.resources import files as package_files
from pathlib import Path

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.java import find_java

_DIRECTORY = os.environ.get("PEACEFS_LIBHDFS")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.skipif(_DIRECTORY is None, reason="PEACEFS_LIBHDFS names no directory with Hadoop's libhdfs.so"),
]
#: Runs in a process of its own, because libhdfs starts a JVM that stays.
_PROGRAM = """
import json, sys
import pyarrow as pa, pyarrow.dataset as ds, pyarrow.fs as fs, pyarrow.parquet as pq
host, port, home = sys.argv[1], int(sys.argv[2]), sys.argv[3]
hdfs = fs.HadoopFileSystem(host, port)
table = pa.table({"key": [n % 7 for n in range(100_000)], "value": list(range(100_000))})
pq.write_table(table, f"{home}/one.parquet", filesystem=hdfs, row_group_size=10_000)
assert pq.read_table(f"{home}/one.parquet", filesystem=hdfs) == table
ds.write_dataset(table, f"{home}/set", format="parquet", partitioning=["key"], filesystem=hdfs)
found = ds.dataset(f"{home}/set", partitioning=["key"], filesystem=hdfs)
counts = found.count_rows(), found.to_table(filter=ds.field("key") == 3).num_rows
with hdfs.open_output_stream(f"{home}/text") as out:
    out.write(b"a line")
with hdfs.open_append_stream(f"{home}/text") as out:
    out.write(b" and more")
with hdfs.open_input_file(f"{home}/ours") as source:
    source.seek(100_000)
    tail = source.read(20).decode()
hdfs.move(f"{home}/text", f"{home}/moved")
infos = {one.base_name: one.size for one in hdfs.get_file_info(fs.FileSelector(home)) if one.is_file}
hdfs.delete_dir(f"{home}/set")
gone = hdfs.get_file_info(f"{home}/set").type == fs.FileType.NotFound
print(json.dumps({"counts": counts, "tail": tail, "infos": infos, "gone": gone}))
"""


def test_pyarrow_reads_and_writes_over_libhdfs(
    shared_cluster: LocalCluster, files: PeaceFileSystem, home: str
) -> None:
    assert _DIRECTORY is not None
    host, _, port = shared_cluster.hdfs_uri.removeprefix("hdfs://").partition(":")
    ours = b"".join(b"%09d\n" % number for number in range(20_000))
    files.write(f"{home}/ours", ours)
    java = find_java().executable.resolve().parent.parent
    jars = Path(str(package_files("pyspark") / "jars")).glob("*.jar")
    environment = {
        **os.environ,
        "ARROW_LIBHDFS_DIR": _DIRECTORY,
        "JAVA_HOME": str(java),
        "LD_LIBRARY_PATH": str(java / "lib" / "server"),
        "CLASSPATH": ":".join(map(str, jars)),
        "LIBHDFS_OPTS": "-Dlog4j2.level=ERROR -Xmx512m",
    }
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, host, port, home],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["counts"] == [100_000, len(range(3, 100_000, 7))]
    assert told["tail"] == ours[100_000:100_020].decode()
    assert told["infos"]["moved"] == len(b"a line and more")
    assert told["infos"]["ours"] == len(ours)
    assert told["gone"]
    assert files.read(f"{home}/moved") == b"a line and more"
