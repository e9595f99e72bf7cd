"""Hosts: they do the I/O for the cores of a dataflow, and tell them the time.

Begin with `local_processes.py`, which runs nodes as processes connected by TCP.
"""
