"""The datanode's session with the coordinator: registration, heartbeats, reports, and commands carried out.

Begin with `coordinator_session.py`. Moves no client data.
"""
