"""The datanode's sessions with the coordinators: registration, heartbeats, reports, and execution of orders.

Begin with `coordinator_session.py`. Client data does not pass here.
"""
