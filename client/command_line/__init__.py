"""The command line: `application` declares every command, and the other modules execute them.

The declarations import nothing heavy, so that a command loads only what it needs.
"""
