"""`peacefs checkpoint rehearse`: load the state in a Spark session on this machine."""

from __future__ import annotations

import msgspec

from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.session import Session
from peacefs.client.control.addresses import DEFAULT_ADDRESS
from peacefs.protocol.errors import QueryFailed
from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.places import checkpoint_place
from peacefs.spark_connector.checkpoints.rehearsal import rehearse, require_batch

from .local_spark import local_spark


def rehearse_checkpoint(session: Session, text: str, batch: int | None, *, as_json: bool) -> None:
    """Print rows and seconds of each store. Raises PeacefsError; QueryFailed if Spark cannot load the state."""
    place = checkpoint_place(session, text)
    inspection = Inspection(place.tree, read_layout(place.tree, place.root))
    wanted = require_batch(inspection, batch)
    with local_spark("rehearse", place.owner or DEFAULT_ADDRESS.http) as spark:
        try:
            done = rehearse(spark, place.tree.uri(place.root), inspection, wanted)
        except QueryFailed as failure:
            advice = "`peacefs checkpoint verify` names the file and the last good batch"
            raise QueryFailed(f"{place.root}: {failure.message}; {advice}") from None
    if as_json:
        print_line(msgspec.json.encode({"root": place.root, "batch": wanted, "state": done}).decode())
        return
    for part in done:
        print_line(f"operator {part.operator} {part.name}: {part.store}: {part.rows} rows in {part.seconds:.2f} s")
    rows = sum(part.rows for part in done)
    print_line(f"{place.root}: Spark loads the state of batch {wanted}: {rows} rows")
