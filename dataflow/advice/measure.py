"""Measure the load of a query on a sample of its rows, with the real cores, in one thread.

The rows arrive at the query's own rate in virtual time, so that windows have their real contents. Processor time
is real. The sample must be longer than the longest window; otherwise the state is too small. If the query has
windows, each output row is taken for one window.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.operators.count_windows import AggregateCountWindows
from peacefs.dataflow.operators.global_windows import AggregateGlobally
from peacefs.dataflow.operators.interface import OperatorSpecification
from peacefs.dataflow.operators.join import JoinWindow
from peacefs.dataflow.operators.keyed_process import ProcessByKey
from peacefs.dataflow.operators.process import Process
from peacefs.dataflow.operators.resample import Resample
from peacefs.dataflow.operators.session_windows import AggregateSessions
from peacefs.dataflow.operators.sort import BoundedSort
from peacefs.dataflow.operators.table_join import JoinTable
from peacefs.dataflow.operators.time_windows import AggregateTimeWindows
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.protocol.errors import InvalidQuery
from peacefs.protocol.limits import MIB

from .load import Parameters, QueryLoad
from .sample_run import SampleRun

# Batches per second in which a sample is cut, and the limit of its state.
advice_batches_s: Final = 20.0
advice_state_bytes_max: Final = 1024 * MIB


_US = 1_000_000


def measure(
    network: Network,
    rows: Mapping[str, pa.Table],
    rate: float,
    parameters: Parameters | None = None,
    *,
    page_bytes: int = Bounds.page_bytes,
) -> QueryLoad:
    """Play the rows of each source once to warm up, once to measure, and twice with checkpoints.

    `rate`: rows of all sources per second. Raises InvalidQuery, QueryFailed.
    """
    parameters = parameters or Parameters()
    count = sum(table.num_rows for table in rows.values())
    if not count:
        raise InvalidQuery("the sample has no rows")
    batches = {source: _cut(table, rate * table.num_rows / count) for source, table in rows.items()}
    bounds = Bounds(page_bytes=page_bytes, state_bytes_max=advice_state_bytes_max)

    def play(technique: Technique) -> SampleRun:
        run = SampleRun(network, technique, bounds)
        run.run(batches, 1 / advice_batches_s)
        return run

    def changed(interval_s: float) -> float:
        run = play(SGuard(interval_s=interval_s))
        return run.page_bytes / run.seconds

    play(Amnesia())
    began_s = time.process_time()
    played = play(Amnesia())
    processor_s = time.process_time() - began_s
    longest_s = remembered_s(network)
    windows = played.rows_out / count if _has_windows(network) else 0.0
    return QueryLoad(
        rate=rate,
        processing_s=processor_s / count,
        row_bytes=sum(table.nbytes for table in rows.values()) / count,
        selectivity=played.rows_out / count,
        state_bytes=played.state_bytes_max,
        copied_bytes_s=changed(parameters.interval_s),
        changed_bytes_s=changed(parameters.checkpoint_s),
        remembered_s=longest_s,
        windows_per_row=windows,
        open_windows=windows * rate * (longest_s or 0.0),
        inputs=len(network.sources),
        units=len(network.units),
    )


def remembered_s(network: Network) -> float | None:
    """Return the maximum time for which a row affects the state of a query. None if its operators do not say."""
    longest_us = 0
    for node in network.operators:
        kept_us = _kept_us(node.specification)
        if kept_us is None:
            return None
        longest_us = max(longest_us, kept_us)
    return longest_us / _US


def _kept_us(specification: OperatorSpecification) -> int | None:
    match specification:
        case AggregateTimeWindows():
            return specification.size_us + specification.lateness_us
        case JoinWindow() | BoundedSort():
            return specification.within_us
        case Resample():
            return specification.every_us
        case Process():
            return 0 if specification.state is None else specification.remembers_us
        case AggregateCountWindows() | AggregateSessions() | AggregateGlobally() | ProcessByKey() | JoinTable():
            return None
    return 0


def _has_windows(network: Network) -> bool:
    kinds = (AggregateTimeWindows, AggregateCountWindows)
    return any(isinstance(node.specification, kinds) for node in network.operators)


def _cut(table: pa.Table, rate: float) -> Sequence[pa.RecordBatch]:
    """Cut rows into batches, `advice_batches_s` of which arrive per second."""
    at_once = max(1, round(rate / advice_batches_s))
    whole = table.combine_chunks()
    return [batch for batch in whole.to_batches(max_chunksize=at_once) if batch.num_rows]
