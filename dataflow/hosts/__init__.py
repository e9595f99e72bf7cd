"""Hosts: what moves bytes and time for the cores of a dataflow.

Begin with `local_processes.py`, which runs nodes as processes that speak TCP.
"""
