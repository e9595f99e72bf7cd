"""The log of the metadata: what a commit changed, durable in one write and one sync. Begin at `segments`."""
