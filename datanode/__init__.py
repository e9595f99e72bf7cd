"""Chunk store, replication pipeline, heartbeat and the WebHDFS data side."""
