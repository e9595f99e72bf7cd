"""The Python client, what writes and reads chunks, and the command line."""
