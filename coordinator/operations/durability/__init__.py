"""Commits of changes, and answers that wait until what they depend on is durable."""
