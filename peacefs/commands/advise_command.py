"""`peacefs dataflow advise`: find a query's recovery technique, from its load on a sample and the closed forms."""

from __future__ import annotations

import math
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.whole_table import add_row, print_whole
from peacefs.dataflow.advice.advice import Demand, Option, advise
from peacefs.dataflow.advice.load import Parameters, QueryLoad
from peacefs.dataflow.advice.measure import measure
from peacefs.dataflow.model.operator_class import Recovery
from peacefs.dataflow.model.reasons import reason_of
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.query.query import Query
from peacefs.protocol.errors import InvalidQuery, PeacefsError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table


@dataclass(frozen=True)
class AdviceOptions:
    """The command's options. `query` is FILE or FILE:NAME, each sample SOURCE=FILE."""

    query: str
    samples: Sequence[str]
    rate: float
    demand: Demand
    parameters: Parameters
    json: bool


def run_advise(options: AdviceOptions) -> int:
    """Print the advice. Return 0, or 1 if no technique meets the demand. Raises InvalidQuery."""
    _check_numbers(options)
    network = _network(options.query)
    load = measure(network, _rows(network, options.samples), options.rate, options.parameters)
    found = advise(network, load, options.demand, parameters=options.parameters)
    if options.json:
        sys.stdout.write(msgspec.json.encode(_told(load, found)).decode() + "\n")
    else:
        _show(network, load, found)
    return 1 if found[0].refused else 0


def recovery_named(name: str) -> Recovery:
    """Return the recovery guarantee of this name. Raises InvalidQuery if there is none."""
    try:
        return Recovery(name)
    except ValueError:
        kinds = ", ".join(kind.value for kind in Recovery)
        raise InvalidQuery(f"--guarantee {name}: it is one of {kinds}") from None


def _check_numbers(options: AdviceOptions) -> None:
    """Raise InvalidQuery for numbers that are out of range."""
    demand, parameters = options.demand, options.parameters
    amounts = {
        "--rate": options.rate,
        "--interval": parameters.interval_s,
        "--checkpoint": parameters.checkpoint_s,
    }
    limits = {
        "--recover-within": demand.recovery_s_max,
        "--processor": demand.processor_max,
        "--traffic": demand.traffic_max,
        "--memory": demand.memory_bytes_max,
    }
    for option, value in amounts.items():
        if not 0 < value < math.inf:
            raise InvalidQuery(f"{option} {value:g}: it must be a number above 0")
    for option, limit in limits.items():
        if limit is not None and not 0 <= limit < math.inf:
            raise InvalidQuery(f"{option} must be a number, 0 or more; leave it out for no limit")


def _network(named: str) -> Network:
    file, _, name = named.partition(":")
    if not Path(file).is_file():
        raise InvalidQuery(f"there is no file {file}: name a Python file that makes a Query, or FILE.py:NAME")
    try:
        made = runpy.run_path(file, run_name="peacefs_advise")
    except PeacefsError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's file raises
        raise InvalidQuery(f"{file} cannot be run: {reason_of(error)}") from error
    queries = {key: value for key, value in made.items() if isinstance(value, Query)}
    if name:
        if name not in queries:
            raise InvalidQuery(f"{file} has no query {name!r}; it has {', '.join(queries) or 'none'}")
        return queries[name].network()
    if len({id(query) for query in queries.values()}) != 1:
        raise InvalidQuery(f"{file} has {len(queries)} queries ({', '.join(queries) or 'none'}): say {file}:NAME")
    return next(iter(queries.values())).network()


def _rows(network: Network, samples: Sequence[str]) -> Mapping[str, pa.Table]:
    sources = {source.name: source.type for source in network.sources}
    found = {}
    for sample in samples:
        source, mark, file = sample.partition("=")
        if not mark and len(sources) == 1:
            source, file = next(iter(sources)), sample
        if source not in sources:
            raise InvalidQuery(f"--sample {sample}: the query's sources are {', '.join(sources)}; say SOURCE=FILE")
        found[source] = _read(Path(file), sources[source])
    if missing := sources.keys() - found.keys():
        raise InvalidQuery(f"a sample of source {min(missing)} is missing: --sample {min(missing)}=FILE")
    return found


def _read(file: Path, kind: StreamType) -> pa.Table:
    """Read Parquet, CSV or JSON lines, chosen by the file's suffix, and cast the columns to the source's types."""
    import pyarrow as pa
    from pyarrow import csv, json, parquet

    readers = {".parquet": parquet.read_table, ".csv": csv.read_csv, ".json": json.read_json}
    if file.suffix not in readers:
        raise InvalidQuery(f"the sample {file} is none of {', '.join(readers)}, by its name")
    if not file.is_file():
        raise InvalidQuery(f"there is no sample {file}")
    try:
        table: pa.Table = readers[file.suffix](file)
        table = table.select(kind.schema.names).cast(kind.schema)
    except (OSError, KeyError, pa.ArrowException) as fault:
        raise InvalidQuery(f"the sample {file} is not of its source's columns: {fault}") from None
    if table.column(kind.time).null_count:
        raise InvalidQuery(f"the sample {file} has rows without a time, {kind.time!r}: leave them out")
    return table


def _told(load: QueryLoad, options: Sequence[Option]) -> dict[str, object]:
    advice = None if options[0].refused else options[0].technique
    techniques = [
        {**asdict(each), "promises": None if each.promises is None else each.promises.value} for each in options
    ]
    return {"advice": advice, "load": asdict(load), "techniques": techniques}


def _show(network: Network, load: QueryLoad, options: Sequence[Option]) -> None:
    sys.stdout.write(
        f"query {network.name} is {network.operator_class}: {load.processing_s * 1e6:.2f} us of a processor and "
        f"{load.row_bytes:.0f} bytes a row, {load.state_bytes / 1e6:,.1f} MB of state, of which "
        f"{load.changed_bytes_s / 1e6:,.2f} MB change in a second\n"
    )
    if load.processors > 1:
        sys.stdout.write(
            f"at {load.rate:,g} rows a second the query itself takes {load.processors:,.1f} processors: cut it "
            "into units or parts, on as many nodes\n"
        )
    print_whole(_table(options))
    for each in options:
        if each.refused:
            print_line(f"not {each.technique}: {each.refused}")
    best = options[0]
    if best.refused:
        sys.stdout.write("no technique keeps what is wanted: ask for less\n")
    else:
        sys.stdout.write(f"take {best.technique}: of those that keep what is wanted, it adds the least\n")


def _table(options: Sequence[Option]) -> Table:
    from rich.table import Table

    table = Table("technique", "gives", "processor", "links", "files", "memory", "recovered in")
    for each in options:
        costs = each.estimate
        if costs is None or each.recovery_s is None or each.promises is None:
            continue
        add_row(
            table,
            each.technique,
            each.promises.value,
            f"+{costs.processor:.0%}",
            f"+{costs.links:.0%}",
            f"+{costs.files:.0%}",
            f"{costs.memory_bytes / 1e6:,.1f} MB",
            f"{each.recovery_s:.2f} s",
        )
    return table
