"""Schemas as users write them: pyarrow schemas, or names with types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from peacefs.protocol.errors import InvalidQuery

from .stream_type import TIME

Schema = pa.Schema | Mapping[str, str | pa.DataType]
#: Spark's names for types that have other names in Arrow.
_SPARK_TYPES = {
    "timestamp": TIME,
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}


def as_schema(schema: Any) -> pa.Schema:
    """Convert a schema given as such, or as names with types: `{"address": "string", "at": "timestamp"}`."""
    if isinstance(schema, pa.Schema):
        return schema
    if not isinstance(schema, Mapping):
        raise InvalidQuery(f"a schema is names and types, as {{'address': 'string'}}, and not {schema!r}")
    return pa.schema([pa.field(name, as_type(name, kind)) for name, kind in schema.items()])


def as_type(column: str, kind: Any) -> pa.DataType:
    """Convert the type of a column, given as such or by name."""
    if isinstance(kind, pa.DataType):
        return kind
    if kind in _SPARK_TYPES:
        return _SPARK_TYPES[kind]
    try:
        return pa.type_for_alias(kind)
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidQuery(
            f"column {column!r} has an unknown type {kind!r}: use string, long, double, bool or timestamp"
        ) from error
