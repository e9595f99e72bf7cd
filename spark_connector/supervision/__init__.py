"""Queries that are kept going: the agent on the nodes that may run them, and how one is registered."""
