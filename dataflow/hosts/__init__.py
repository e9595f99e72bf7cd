"""Hosts: what moves bytes and time for the cores of a dataflow.

Begin with `seeded.py`, which runs everything in one thread in virtual time; `local_processes.py` runs nodes as
processes that speak TCP.
"""
