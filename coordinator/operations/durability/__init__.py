"""Commits of changes, and answers that wait until the changes that they depend on are durable."""
