"""UnorderedMap: linear hashing over pages (SGuard, Table 3), for columns of fixed width and texts."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from peacefs.state.pages.page_set import PageSet

from .heap import TextColumn
from .record_map import RecordMap
from .text_map import TextMap


class UnorderedMap(RecordMap):
    """A map in a page set. Keys and values have one or more columns."""

    @classmethod
    def create(cls, page_set: PageSet, schema: pa.Schema, key: str | Sequence[str]) -> UnorderedMap:
        """Create a map in a page set, or adopt the map that was recovered with the page set.

        `key` names one or more columns of `schema`; the others are the value. Raises SchemaMismatch if the
        recovered structure has another kind or schema, RecordRefused for unsupported types.
        """
        has_texts = any(TextColumn.takes(field.type) for field in schema)
        kind = _UnorderedTextMap if has_texts else UnorderedMap
        return kind._create(page_set, schema, [key] if isinstance(key, str) else list(key))


class _UnorderedTextMap(TextMap, UnorderedMap):
    """The class that `UnorderedMap.create` uses for schemas with strings or bytes."""
