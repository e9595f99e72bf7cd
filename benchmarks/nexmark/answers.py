"""The answers of Nexmark's queries, computed by DuckDB from all events at once. Times are in microseconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Protocol

import duckdb
import pyarrow as pa

Rows = Counter[tuple[Any, ...]]

_TEN_S = 10_000_000
_TWO_S = 2_000_000
_GAP_US = 1_000_000

_MAX_BY_WINDOW = f'SELECT "at" // {_TEN_S} AS number, max(price) AS price FROM bids GROUP BY number'
#: Each auction with a valid bid: its highest price, and a second after its last bid.
_FINALS = f"""
    SELECT auctions.id, category, max(price) AS final, max(bids."at") + {_GAP_US} AS closed
    FROM auctions JOIN bids ON auctions.id = bids.auction AND bids."at" BETWEEN auctions."at" AND auctions.expires
    GROUP BY ALL
"""

#: The columns and their names are those of the queries in `queries.py`.
SQL: Final[Mapping[str, str]] = {
    "q0": "SELECT * FROM bids",
    "q1": 'SELECT auction, bidder, "at", extra, CAST(price AS DOUBLE) * CAST(0.908 AS DOUBLE) AS price FROM bids',
    "q2": 'SELECT auction, price, "at" FROM bids WHERE auction % 123 = 0',
    "q3": """
        SELECT greatest(persons."at", auctions."at") AS "at", persons.id, name, city, state, auctions.id AS auction
        FROM auctions JOIN persons ON seller = persons.id
        WHERE category = 10 AND state IN ('or', 'id', 'ca')
    """,
    "q4": f"""
        WITH finals AS ({_FINALS}),
        shown AS (
            SELECT DISTINCT category, least(ceil(closed / {_TEN_S}) * {_TEN_S}, latest) AS window_end
            FROM finals, (SELECT max(closed) AS latest FROM finals)
        )
        SELECT CAST(window_end AS BIGINT) AS window_end, category, avg(final) AS average
        FROM shown JOIN finals USING (category) WHERE closed <= window_end GROUP BY ALL
    """,
    "q5": f"""
        WITH placed AS (
            SELECT auction,
                unnest(generate_series("at" // {_TWO_S} - 4, "at" // {_TWO_S})) * {_TWO_S} AS start
            FROM bids
        ),
        counted AS (SELECT auction, start, count(*) AS bids FROM placed GROUP BY ALL)
        SELECT start + {_TEN_S} + {_TWO_S} AS window_end, start, auction, bids
        FROM counted WHERE bids = (SELECT max(bids) FROM counted AS other WHERE other.start = counted.start)
    """,
    "q7": f"""
        SELECT auction, bidder, price, (number + 1) * {_TEN_S} AS "at", extra, bids."at" AS offered
        FROM bids JOIN ({_MAX_BY_WINDOW}) AS highest USING (price) WHERE bids."at" // {_TEN_S} = number
    """,
    "q8": f"""
        SELECT DISTINCT (persons."at" // {_TEN_S} + 1) * {_TEN_S} AS window_end, persons.id, name,
            persons."at" // {_TEN_S} * {_TEN_S} AS window_start
        FROM persons JOIN auctions ON persons.id = seller AND persons."at" // {_TEN_S} = auctions."at" // {_TEN_S}
    """,
    "q11": f"""
        WITH marked AS (
            SELECT bidder, "at", "at" - lag("at") OVER mine >= {_TEN_S} AS opens
            FROM bids WINDOW mine AS (PARTITION BY bidder ORDER BY "at")
        ),
        numbered AS (
            SELECT bidder, "at", sum(coalesce(CAST(opens AS INT), 0)) OVER mine AS number
            FROM marked WINDOW mine AS (PARTITION BY bidder ORDER BY "at")
        )
        SELECT max("at") + {_TEN_S} AS window_end, bidder, min("at") AS window_start, count(*) AS bids
        FROM numbered GROUP BY bidder, number
    """,
}


class Tables(Protocol):
    def __getitem__(self, kind: str, /) -> pa.Table: ...


def answer(query: str, given: Tables) -> pa.Table:
    """Return the rows that a query must give, in any order."""
    with duckdb.connect() as connection:
        for kind in ("persons", "auctions", "bids"):
            connection.register(kind, _in_microseconds(given[kind]))
        table: pa.Table = connection.sql(SQL[query]).to_arrow_table()
        return table


def told(table: pa.Table, columns: list[str]) -> Rows:
    """Return how often each row occurs, with its columns in this order."""
    plain = _in_microseconds(table)
    return Counter(zip(*(plain.column(name).to_pylist() for name in columns), strict=True))


def _in_microseconds(table: pa.Table) -> pa.Table:
    kinds = [pa.int64() if pa.types.is_timestamp(each.type) else each.type for each in table.schema]
    return table.cast(pa.schema(zip(table.schema.names, kinds, strict=True)))
