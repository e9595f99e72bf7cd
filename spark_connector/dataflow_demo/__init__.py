"""`peacefs dataflow demo`: a query on Spark's executors that loses one, and a datanode, and stays exact.

Begin with `app.py`, which starts a cluster and the driver, and kills; `driver.py` runs the query in a process of
its own and says what happens, a line of JSON each; `measures.py` makes a table of it. Knows `dataflow`, and the
parts of the other demo that read logs.
"""
