"""The driver's reports while the query runs: lines of JSON on standard output. Times are `time.monotonic`."""

from __future__ import annotations

import msgspec


class RunBegun(msgspec.Struct, frozen=True, tag="begun"):
    """All units run. `executors` maps each unit to its executor's pid."""

    at_s: float
    executors: dict[str, int]


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    at_s: float
    lines: int


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    at_s: float
    node: str


class Checkpointed(msgspec.Struct, frozen=True, tag="checkpoint"):
    at_s: float
    unit: str
    pages_written: int
    pages_referred: int
    bytes_written: int
    pause_ms: float
    stored_ms: float


class RecoverySeen(msgspec.Struct, frozen=True, tag="recovered"):
    at_s: float
    unit: str
    load_s: float
    replay_s: float


class Delivered(msgspec.Struct, frozen=True, tag="delivered"):
    """Rows of a window arrived, `latency_ms` after the line that completed the window was offered."""

    at_s: float
    offered_s: float
    latency_ms: float
    rows: int


class RunDone(msgspec.Struct, frozen=True, tag="done"):
    at_s: float
    lines: int
    streamed: list[tuple[int, str, int]]


class BatchRows(msgspec.Struct, frozen=True, tag="batch"):
    rows: list[tuple[int, str, int]]


News = RunBegun | Progress | Lost | Checkpointed | RecoverySeen | Delivered | RunDone | BatchRows
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(News).decode


class Plan(msgspec.Struct, frozen=True):
    """The driver's parameters."""

    coordinator: str
    checkpoints: str
    logs: list[str]
    directory: str
    lines: int
    lines_per_s: int
    batch_lines: int
    size_s: int
    every_s: int
    lateness_s: int
    #: year, month, day of `YearAssumption`
    years: tuple[int, int, int]
    nodes: int
    checkpoint_every_s: float
