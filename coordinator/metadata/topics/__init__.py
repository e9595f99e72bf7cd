"""The storage interface by topic: names, chunks, leases, snapshots, quotas, queries, answers, credentials.

Each has what a reader reads and what a transaction changes besides. Begin at `store`, which puts them together,
and with names, on which the rest depends. Imports the model and the ids; knows no engine.
"""
