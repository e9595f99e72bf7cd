"""Writes the small chunks of several files together, with one send for each head of a pipeline.

The datanodes then serve the chunks of a send as one batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from peacefs.protocol.checksums import block_checksums, chunk_checksum
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import batched_chunk_bytes_max
from peacefs.protocol.limits import hop_timeout_s as default_hop_timeout_s
from peacefs.protocol.messages import Allocated, Hop, WriteAck, WriteChunk, WrittenChunk
from peacefs.runtime import effects as fx

from .batch_link import BatchLink, OutgoingChunk
from .next_hop import link_timeout_s

# The answers of all heads arrive at the same time, but are read one head after the other. So each head has at
# least this part of a hop's timeout when its turn comes.
_TURN_MIN = 0.1


def send_chunks(
    chunks: Sequence[tuple[Allocated, bytes]], *, hop_timeout_s: float = default_hop_timeout_s
) -> fx.Steps[list[WrittenChunk | PeacefsError]]:
    """Make one attempt to write each chunk. Return for each what `send_chunk` would return or raise.

    A chunk has at most `batched_chunk_bytes_max` bytes. One that fails does not affect the others.
    """
    outgoing = [_outgoing(allocated, data, hop_timeout_s) for allocated, data in chunks]
    outcomes: dict[OutgoingChunk, WrittenChunk | PeacefsError] = {}
    groups: dict[Hop, list[OutgoingChunk]] = {}
    for (allocated, _data), chunk in zip(chunks, outgoing, strict=True):
        groups.setdefault(allocated.pipeline[0], []).append(chunk)
    links = [(BatchLink(head), group) for head, group in groups.items()]
    try:
        for link, group in links:
            try:
                yield from link.send(group)
            except PeacefsError as fault:
                outcomes.update(dict.fromkeys(group, fault))
        sent_s = yield from fx.now()
        for link, _group in links:
            waits_until_s = (yield from fx.now()) + hop_timeout_s * _TURN_MIN
            while not link.is_over():
                answers = yield from link.answers((yield from fx.now()), sent_s, waits_until_s)
                outcomes.update((chunk, _written(chunk, answer)) for chunk, answer in answers)
    finally:
        for link, _group in links:
            yield from link.end()
    return [outcomes[chunk] for chunk in outgoing]


def _outgoing(allocated: Allocated, data: bytes, hop_timeout_s: float) -> OutgoingChunk:
    assert len(data) <= batched_chunk_bytes_max
    sums = block_checksums(data)
    nodes = [hop.node for hop in allocated.pipeline]
    opening = WriteChunk(allocated.token, allocated.chunk, allocated.version, sums, last=True)
    timeout_s = link_timeout_s(-1, len(nodes), hop_timeout_s)
    return OutgoingChunk(opening, data, len(data), chunk_checksum(sums), nodes, timeout_s)


def _written(chunk: OutgoingChunk, answer: WriteAck | PeacefsError) -> WrittenChunk | PeacefsError:
    if not isinstance(answer, WriteAck):
        return answer
    opening = chunk.opening
    return WrittenChunk(opening.chunk, opening.version, chunk.length, chunk.checksum, answer.receipts)
