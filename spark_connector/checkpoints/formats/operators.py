"""Parse a stateful operator's metadata: its stores and partitions, and the schemas of its state. Pure.

Version 1 is `state/<operator>/_metadata/metadata`. Version 2, of `transformWithState`, is `_metadata/v2/<batch>`,
and names its schema files by absolute URIs. Schemas are `state/<operator>/0[/<store>]/_metadata/schema`, or in
version 2 the files in `state/<operator>/_stateSchema/<store>/`.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import msgspec

from peacefs.protocol.errors import CheckpointDamaged, CheckpointTooNew
from peacefs.protocol.values.query_runs import without_run
from peacefs.spark_connector.limits import checkpoint_partitions_max

from .binary import DataInput

_NEWEST = 2
_SCHEMA_NEWEST = 3
_COLUMN_FAMILIES_MAX = 10_000
_LOCATION = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/]*)?)(/.*)", re.DOTALL)


class StoreInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A store of an operator. An operator with a single store calls it `default`."""

    store_name: str
    num_partitions: int
    num_cols_prefix_key: int = 0
    #: Absolute URIs.
    state_schema_file_paths: list[str] = []


class OperatorInfo(msgspec.Struct, frozen=True, rename="camel"):
    """The operator's number among the query's stateful operators, and its name."""

    operator_id: int
    operator_name: str


class StatefulOperator(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of a stateful operator: its stores, each with its number of partitions."""

    operator_info: OperatorInfo
    state_store_info: list[StoreInfo]
    #: For `transformWithState`: JSON that names its state variables.
    operator_properties_json: str = ""


def parse_operator(data: bytes) -> StatefulOperator:
    """Parse operator metadata. Raises CheckpointDamaged, CheckpointTooNew."""
    head, _, rest = data.partition(b"\n")
    if head[:1] != b"v" or not head[1:].isdigit():
        raise CheckpointDamaged("it does not begin with a version" if data else "empty")
    if int(head[1:10]) > _NEWEST:
        raise CheckpointTooNew(f"version {head[1:10].decode()}; this program knows up to {_NEWEST}")
    try:
        operator = msgspec.json.decode(rest, type=StatefulOperator)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointDamaged(f"cannot be read: {error}") from None
    partitions = [store.num_partitions for store in operator.state_store_info]
    if not partitions or min(partitions) < 1 or sum(partitions) > checkpoint_partitions_max:
        raise CheckpointDamaged("it names no store, or one with a number of partitions that cannot be")
    return operator


class Location(NamedTuple):
    """A Hadoop Path, unescaped as Hadoop prints it. The run in it is left out.

    `file_system` is scheme and authority, `webhdfs://host:9870` or `file:`; empty if the path has none.
    """

    file_system: str
    path: str

    @property
    def kind(self) -> str:
        """The scheme, with `swebhdfs` (TLS) counted as `webhdfs`."""
        scheme = self.file_system.partition(":")[0]
        return "webhdfs" if scheme == "swebhdfs" else scheme

    @property
    def authority(self) -> str:
        return self.file_system.partition("//")[2]


def location_of(text: str) -> Location:
    """Split a Hadoop Path. Spark resolves a path without a file system on its default one."""
    found = _LOCATION.fullmatch(text)
    return Location(found[1], without_run(found[2])) if found else Location("", without_run(text))


class StateSchema(NamedTuple):
    """A valid schema file. `keyless` means that its key has no columns."""

    version: int
    keyless: bool = False


def parse_schema(data: bytes) -> StateSchema:
    """Parse a schema. Raises CheckpointDamaged, CheckpointTooNew."""
    source = DataInput(data)
    mark = source.text()
    if mark[:1] != "v" or not mark[1:].isdecimal():
        raise CheckpointDamaged("it does not begin with a version")
    version = int(mark[1:])
    if version > _SCHEMA_NEWEST:
        raise CheckpointTooNew(f"version {version}; this program knows up to {_SCHEMA_NEWEST}")
    keyless = False
    if version == _SCHEMA_NEWEST:
        _column_families(source)
    else:
        texts = [source.text() if version == 1 else _chunked(source) for _ in ("key", "value")]
        key, _ = map(_json, texts)
        keyless = isinstance(key, dict) and key.get("fields") == []
    if not source.at_end:
        raise CheckpointDamaged("something follows its end")
    return StateSchema(version, keyless)


def _column_families(source: DataInput) -> None:
    families = source.int()
    if not 0 < families <= _COLUMN_FAMILIES_MAX:
        raise CheckpointDamaged(f"{families} column families")
    for _ in range(families):
        source.text()
        for _part in ("key", "value"):
            source.short()
            _json(_chunked(source))
        _json(_chunked(source))  # the encoding of keys
        _chunked(source)  # the user's own schema of keys, may be blank


def _chunked(source: DataInput) -> str:
    """Read a long text: the number of pieces, then the pieces."""
    return "".join(source.text() for _ in range(source.int()))


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise CheckpointDamaged("a schema in it cannot be read") from None
