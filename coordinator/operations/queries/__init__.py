"""Streaming queries: their runs and the fences between them, reports, logs, and supervision by agents."""
