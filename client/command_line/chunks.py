"""Executes `peacefs chunk explain`: shows what the coordinator knows about a chunk, and why."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.values.chunk_explanation import ChunkExplanation, ReplicaExplanation

from .listing import print_line


def explain_chunk(coordinator: str, chunk: str, *, as_json: bool) -> None:
    """Print the explanation of a chunk. Raises PeacefsError."""
    with PeaceFileSystem(coordinator) as files:
        explained = files.explain_chunk(chunk)
    if as_json:
        print_line(msgspec.json.encode(explained).decode())
        return
    for line in explanation_lines(explained):
        print_line(line)


def explanation_lines(explained: ChunkExplanation) -> Iterator[str]:
    """Format an explanation for people."""
    yield f"chunk {explained.chunk}: {_standing(explained)}"
    if explained.findings:
        yield f"findings: {', '.join(reversed(explained.findings))}"
    yield from _part("files", [*explained.files, *(["... and more"] if explained.more_files else [])])
    yield from _part("replicas", map(_replica, explained.replicas))
    yield from _part("pending", (f"{each.kind}: {each.text}" for each in explained.pending))
    yield from _part("history", (f"{_ago(each.ago_s)}, {each.node}: {each.text}" for each in explained.history))


def _standing(explained: ChunkExplanation) -> str:
    if explained.length is None:
        return explained.standing.value
    replication = f"replication {explained.replication}"
    return f"{explained.standing}, version {explained.version}, {explained.length} bytes, {replication}"


def _replica(replica: ReplicaExplanation) -> str:
    since = "" if replica.since_s is None else f", {_ago(replica.since_s)}"
    return f"{replica.node} ({replica.datanode}): {replica.state}: {replica.because}{since}"


def _part(name: str, lines: Iterator[str] | list[str]) -> Iterator[str]:
    found = list(lines)
    yield f"{name}:" if found else f"{name}: none"
    yield from (f"  {line}" for line in found)


def _ago(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7200 else f"{seconds / 3600:.0f} h ago"
