"""A distributed, replicated file system for stream processors that checkpoint their state. See ARCHITECTURE.md."""

__version__ = "0.2.0"
