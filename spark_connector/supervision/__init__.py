"""Supervised queries: the agent that runs and restarts them on its node, and how a query is registered."""
