"""Has Spark's daemons of Python workers import what workers import, before they fork them.

An interpreter imports this module when it begins, where PYTHONPATH names its directory. `pyspark.daemon` imports
nothing itself, since an import may start threads that forks would lack; each worker imports all anew, and a stream
log has four of them for each batch. What is imported here starts no threads.
"""

import importlib
import os
import sys
from pathlib import Path

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    for _name in (*sys.orig_argv[3:], "peacefs.spark_connector.stream_logs"):
        importlib.import_module(_name)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "an import has started a thread: forks would lack it"
