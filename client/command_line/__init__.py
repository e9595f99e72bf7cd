"""The command line: `application` declares every command, the other modules carry them out.

Declarations import nothing heavy, so that a command loads only what it needs.
"""
