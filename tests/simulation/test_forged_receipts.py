"""A file refers only to chunks that datanodes have attested: the word of a writer is not enough."""

from __future__ import annotations

import pytest
from simulation.client_requests import Create, Created
from simulation.client_steps import read
from simulation.simulated_cluster import SimulatedCluster

from peacefs.protocol.errors import AccessDenied, BadRequest, FileNotFound, PeacefsError
from peacefs.protocol.messages import Completed, CompleteFile, Receipt, WrittenChunk
from peacefs.runtime import effects as fx


def claim(path: str, mac: bytes | None) -> fx.Steps[None]:
    """Claim that a chunk is on its pipeline without having written a byte."""
    created = yield from fx.call(Create(path, path), Created, timeout_s=5.0)
    allocated = created.allocated
    receipts = [] if mac is None else [Receipt(hop.node, mac) for hop in allocated.pipeline]
    chunk = WrittenChunk(allocated.chunk, allocated.version, 1000, 7, receipts)
    yield from fx.call(CompleteFile(created.token, [chunk]), Completed, timeout_s=5.0)


@pytest.mark.parametrize(
    ("mac", "error"), [(b"0" * 16, AccessDenied), (b"", AccessDenied), (None, BadRequest)], ids=repr
)
@pytest.mark.evidence("acknowledged-is-durable")
def test_a_file_whose_chunks_no_datanode_has_attested_is_not_made(
    mac: bytes | None, error: type[PeacefsError]
) -> None:
    cluster = SimulatedCluster(seed=1)
    cluster.until_ready()
    client = cluster.client("client")
    with pytest.raises(error):
        cluster.world.run_task(cluster.start(client, "claim", claim("/f", mac)), limit_s=60.0)
    with pytest.raises(FileNotFound):
        cluster.world.run_task(cluster.start(client, "read", read("/f")), limit_s=60.0)
