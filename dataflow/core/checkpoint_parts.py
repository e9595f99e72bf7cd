"""A unit's checkpoint as named parts of bytes: the state of its operators, and its edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from peacefs.dataflow.model.batches import Batch, Position
from peacefs.dataflow.unit_state.interface import StateCapture

from .ha_output import OutputContents
from .output_buffer import BufferContents, Level, Mark

_EDGES = "edges"
_ROWS = "rows of "
_STATE = "state "


@dataclass(frozen=True)
class InputContents:
    """An input, as a checkpoint holds it."""

    processed: Position
    ended: bool


@dataclass(frozen=True)
class UnitContents:
    """A checkpoint that was loaded and is not in a unit yet."""

    inputs: Mapping[str, InputContents]
    outputs: Mapping[str, OutputContents]
    state: Mapping[str, bytes]


@dataclass(frozen=True)
class UnitCapture:
    """A unit at one moment. Rows and state are shared with the unit, which never changes them in place."""

    inputs: Mapping[str, InputContents]
    outputs: Mapping[str, OutputContents]
    state: StateCapture

    def parts(self) -> Mapping[str, bytes]:
        edges = {
            "inputs": {name: [*each.processed, each.ended] for name, each in self.inputs.items()},
            "outputs": {
                name: [each.lineage, each.ended, each.buffer.marks, [batch.first for batch in each.buffer.batches]]
                for name, each in self.outputs.items()
            },
        }
        parts = {_EDGES: msgspec.msgpack.encode(edges)}
        parts |= {_ROWS + name: _write(each.buffer.batches) for name, each in self.outputs.items()}
        parts |= {_STATE + name: part for name, part in self.state.parts().items()}
        return parts


def read_parts(parts: Mapping[str, bytes]) -> UnitContents:
    edges: dict[str, Any] = msgspec.msgpack.decode(parts[_EDGES])
    inputs = {
        name: InputContents(Position(lineage, number), ended)
        for name, (lineage, number, ended) in edges["inputs"].items()
    }
    outputs = {}
    for name, (lineage, ended, marks, firsts) in edges["outputs"].items():
        batches = tuple(map(Batch, firsts, _read(parts[_ROWS + name])))
        read_marks = tuple(
            (Mark(Level(level), destination), tuple((first, last) for first, last in ranges))
            for (level, destination), ranges in marks
        )
        outputs[name] = OutputContents(lineage, ended, BufferContents(batches, read_marks))
    state = {name.removeprefix(_STATE): part for name, part in parts.items() if name.startswith(_STATE)}
    return UnitContents(inputs, outputs, state)


def _write(batches: tuple[Batch, ...]) -> bytes:
    if not batches:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].rows.schema) as writer:
        for batch in batches:
            writer.write_batch(batch.rows)
    return bytes(sink.getvalue())


def _read(part: bytes) -> list[pa.RecordBatch]:
    if not part:
        return []
    with pa.ipc.open_stream(part) as reader:
        return list(reader)
