"""Queries kept going: where each runs, when it is started again and where.

Begin with `core.py`, which is pure; `service.py` is its shell. Agents are in `spark_connector.supervision`.
"""
