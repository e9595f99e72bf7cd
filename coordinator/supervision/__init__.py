"""The core of supervision: on which node each supervised query runs, and when and where it is started again.

Begin with `core.py`. Pure; its shell is `operations/queries/supervision.py`. Agents are in
`spark_connector.supervision`.
"""
