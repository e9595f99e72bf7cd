"""UnorderedMap: linear hashing over pages (SGuard, Table 3), for columns of fixed width and for texts."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from peacefs.state.pages.page_set import PageSet

from .heap import TextColumn
from .record_map import RecordMap
from .text_map import TextMap


class UnorderedMap(RecordMap):
    """A map in a page set, from keys of one or more columns to values."""

    @classmethod
    def create(cls, page_set: PageSet, schema: pa.Schema, key: str | Sequence[str]) -> UnorderedMap:
        """Make a map in a page set, or take over the one that was recovered with it.

        `key` names one or more columns of `schema`; the others are the value. Raises SchemaMismatch for a
        recovered structure of another kind or schema, RecordRefused for types that are not kept.
        """
        has_texts = any(TextColumn.takes(field.type) for field in schema)
        kind = _UnorderedTextMap if has_texts else UnorderedMap
        return kind._create(page_set, schema, [key] if isinstance(key, str) else list(key))


class _UnorderedTextMap(TextMap, UnorderedMap):
    """What `UnorderedMap.create` returns for a schema with strings or bytes."""
