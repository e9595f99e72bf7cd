"""The commands to a writer on an emulated host, and its answers."""

from __future__ import annotations

import msgspec


class WriteOrder(msgspec.Struct, frozen=True, tag="write"):
    """An order to write chunks of these sizes at time `at_s` of the machine's monotonic clock. The datanodes in
    `exclude` get no replicas. At most `parallel` chunks are written at once. Without `kept` the file is deleted
    after it was written. `write_class` is as in `NewFile`.
    """

    path: str
    chunks: list[int]
    replication: int
    exclude: list[str]
    parallel: int
    at_s: float
    kept: bool
    write_class: str = ""


class UploadOrder(msgspec.Struct, frozen=True, tag="upload"):
    """Write a file of this size over WebHDFS, as stock clients do, from `at_s` on."""

    path: str
    length: int
    block_bytes: int
    replication: int
    at_s: float


class DeleteOrder(msgspec.Struct, frozen=True, tag="delete"):
    """Delete a tree."""

    path: str


class PolicyOrder(msgspec.Struct, frozen=True, tag="policy"):
    """Set the policy that grants chunks from now on."""

    policy: str


class Changed(msgspec.Struct, frozen=True, tag="changed"):
    """The policy has changed."""


class MeasureOrder(msgspec.Struct, frozen=True, tag="measure"):
    """Measure the write rate of this datanode's disk, for a given time with each number of streams."""

    datanode: str
    seconds: float


class MeasureLinkOrder(msgspec.Struct, frozen=True, tag="measure-link"):
    """Measure the rate between two groups of datanodes, each way, for as long as `calibrate` does."""

    one: list[str]
    other: list[str]
    seconds: float


class LinkMeasured(msgspec.Struct, frozen=True, tag="link-measured"):
    """Bytes per second, each way."""

    bytes_s: float


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    """Bytes per second, by number of streams."""

    disk: list[tuple[int, float]]


class Written(msgspec.Struct, frozen=True, tag="written"):
    """When a set was requested, first granted and completed, by the machine's monotonic clock."""

    asked_s: float
    granted_s: float
    done_s: float


class Uploaded(msgspec.Struct, frozen=True, tag="uploaded"):
    """When a file was acknowledged, by the machine's monotonic clock."""

    done_s: float


class Deleted(msgspec.Struct, frozen=True, tag="deleted"):
    """The tree is deleted."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The first message, before any order."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The order failed; this is the reason."""

    message: str


Order = WriteOrder | UploadOrder | DeleteOrder | MeasureOrder | MeasureLinkOrder | PolicyOrder
Answer = Ready | Changed | Written | Uploaded | Deleted | Measured | LinkMeasured | Failed
