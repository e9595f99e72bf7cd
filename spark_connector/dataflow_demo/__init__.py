"""`peacefs dataflow demo`: a query on Spark's executors that loses an executor and a datanode and stays exact.

Begin with `app.py`, which starts a cluster and the driver, and kills processes. `driver.py` runs the query in its
own process and reports its progress as lines of JSON; `measures.py` turns them into a table. Imports `dataflow`,
and the modules of `demo` that read logs.
"""
