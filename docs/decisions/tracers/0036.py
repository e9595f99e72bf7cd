import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from peacefs.spark_connector.java import find_java, java_environment

scratch = tempfile.TemporaryDirectory()
os.environ |= {
    **java_environment(find_java(), Path(scratch.name)),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
}

import pyspark
from pyspark.sql import SparkSession

# Workers keep their files in Spark's home, which is the package: a home of links keeps them out of it.
home = Path(scratch.name, "spark")
home.mkdir()
for part in Path(pyspark.__file__).parent.iterdir():
    (home / part.name).symlink_to(part)
os.environ["SPARK_HOME"] = str(home)

spark = (
    SparkSession.builder.master("local-cluster[2,1,512]")
    .config("spark.executor.memory", "512m")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
context = spark.sparkContext
context.setLogLevel("ERROR")
directory = scratch.name


def node(name):
    """Run until told to end, and say in which process."""
    import os, time
    from pathlib import Path

    Path(directory, name).write_text(str(os.getpid()))
    while not Path(directory, "end").exists():
        time.sleep(0.05)
    return name


def run(name, ended):
    context.setJobGroup(name, name, True)
    ended[name] = context.parallelize([name], 1).map(node).collect()


ended = {}
threads = [threading.Thread(target=run, args=(name, ended)) for name in ("node-1", "node-2")]
for thread in threads:
    thread.start()
# Both are there at the same time, each in a process of its own: two jobs, two executors.
while not all(Path(directory, name).exists() for name in ("node-1", "node-2")):
    assert all(thread.is_alive() for thread in threads)
    time.sleep(0.05)
assert Path(directory, "node-1").read_text() != Path(directory, "node-2").read_text()
Path(directory, "end").touch()
for thread in threads:
    thread.join()
assert ended == {"node-1": ["node-1"], "node-2": ["node-2"]}
spark.stop()
scratch.cleanup()
