"""Show a file's chunks and their replicas to people. Opens nothing and notes no access time."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from peacefs.coordinator.metadata.model import FileChunk
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.ids import show
from peacefs.protocol.values.file_chunks import FileChunks, PlacedChunk, ReplicaPlace

from .context import OperationContext
from .read import look_up

file_chunks_shown_max: Final = 500


class FileChunkOperations:
    """Shows the chunks of files that the caller may read."""

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context

    async def shown(self, path: str, user: str, first: int = 0) -> FileChunks:
        """Return the chunks from number `first`. Raises FileNotFound, AccessDenied, PathIsDirectory."""
        parsed = parse_path(path)
        await self._ctx.under_construction.settle(parsed)
        file = look_up(self._ctx, path, parsed, user)
        first = max(0, first)
        offsets = list(accumulate((chunk.length for chunk in file.chunks), initial=0))
        shown = [
            PlacedChunk(show(chunk.chunk), offsets[number], chunk.length, self._places(chunk))
            for number, chunk in enumerate(file.chunks)
            if first <= number < first + file_chunks_shown_max
        ]
        return FileChunks(path, file.status.length, file.status.replication, len(file.chunks), first, shown)

    def _places(self, chunk: FileChunk) -> list[ReplicaPlace]:
        members = self._ctx.cluster.members
        found = []
        for node_id, state in self._ctx.cluster.replicas.of(chunk.chunk).items():
            node = members.get(node_id)
            rack, datanode = ("", "unknown") if node is None else (node.rack, node.state.value)
            found.append(ReplicaPlace(node_id, rack, state.name.lower().replace("_", " "), datanode))
        return found
