"""Explain a chunk: what the cluster knows about it, and which files refer to it."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from peacefs.coordinator.cluster.explain import Explainer
from peacefs.protocol.errors import FileNotFound
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.values.chunk_explanation import ChunkExplanation, parse_chunk_id

from .context import OperationContext
from .temporary_files import path_of

# Maximum number of referring files that are reported, and of references that are read per turn of the event loop.
chunk_files_shown_max: Final = 20
chunk_references_per_turn: Final = 5_000


class ChunkExplanations:
    """Explains chunks. There is no index from chunks to files, so all references are read, in turns."""

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context

    async def explain(self, text: str) -> ChunkExplanation:
        """Explain the chunk whose printed id is `text`. Raises BadRequest, FileNotFound."""
        chunk = parse_chunk_id(text)
        record = self._ctx.reader.chunk(chunk)
        explained = Explainer(self._ctx.cluster, self._ctx.monotonic()).explain(chunk, record)
        if explained is None:
            raise FileNotFound(f"nothing is known of chunk {text}: no file refers to it and no datanode holds it")
        if record is None:
            return explained
        files, more = await self._files(chunk)
        return replace(explained, files=files, more_files=more)

    async def _files(self, chunk: ChunkId) -> tuple[list[str], bool]:
        """Return the paths of files that refer to a chunk, and whether there are more than the maximum."""
        reader, found = self._ctx.reader, 0
        paths: dict[str, None] = {}
        references = reader.reference_count(chunk)
        for inodes in reader.referrers(chunk, chunk_references_per_turn):
            found += len(inodes)
            paths |= dict.fromkeys(str(path) for inode in inodes if (path := path_of(reader, inode)) is not None)
            if found >= references or len(paths) > chunk_files_shown_max:
                break
            await self._ctx.sleep(0)
        return sorted(paths)[:chunk_files_shown_max], len(paths) > chunk_files_shown_max
