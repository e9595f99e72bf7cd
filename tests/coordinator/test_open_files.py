"""Files of HDFS clients: their leases after a failover, and blocks that a stranger names."""

from __future__ import annotations

import asyncio

import pytest
from support.immediate_commit import CommitsAtOnce, durable_at_once
from support.new_core import new_core
from support.no_links import NoLinks
from support.open_root import open_root

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.metadata.store import Metadata
from peacefs.coordinator.operations.context import OperationContext
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.operations.leases import lease_s
from peacefs.protocol.errors import AlreadyBeingCreated, LeaseExpired
from peacefs.protocol.ids import Numbering
from peacefs.protocol.messages import Register, ReportChunks, Usage
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.tokens import Signer

GIB = 1 << 30


class Clock:
    now_s = 0.0


def coordinator(metadata: Metadata, clock: Clock) -> Files:
    """Return the operations of a coordinator with one datanode, as it begins to lead now."""
    core = new_core(clock.now_s, numbering=Numbering(metadata.begin_epoch()))
    core.cluster.loaded()
    registration = Register("dn-1", "127.0.0.1", 1, "127.0.0.1", 2, "/rack", Usage(100 * GIB, 0, 100 * GIB))
    core.cluster.register(clock.now_s, registration)
    core.cluster.report(clock.now_s, "dn-1", ReportChunks([], True))
    context = OperationContext(
        metadata.reader(),
        CommitsAtOnce(metadata),
        core,
        Signer(b"secret"),
        NoLinks(),
        durable_at_once(metadata),
        monotonic=lambda: clock.now_s,
    )
    return Files(context)


@pytest.fixture
def metadata() -> Metadata:
    made = store_in_memory()
    run_now(made, open_root)
    return made


def test_client_keeps_all_its_files_at_the_next_coordinator_whichever_it_uses_first(metadata: Metadata) -> None:
    """HDFS: renewLease renews the leases of all files that a client has open."""
    clock = Clock()

    async def run() -> None:
        before = coordinator(metadata, clock)
        for path in ("/a", "/b"):
            await before.open_files.create(NewFile(path=path, user="ann", replication=1), "client")
        after = coordinator(metadata, clock)
        await after.open_files.add_block("/a", 0, "ann", "client", None)
        for clock.now_s in (lease_s / 2, lease_s):
            await after.open_files.renew("client")
        clock.now_s = lease_s + 1.0
        for path in ("/a", "/b"):
            with pytest.raises(AlreadyBeingCreated):
                await after.open_files.append(path, "ann", "another client", "")

    asyncio.run(run())


def test_block_of_another_user_cannot_be_abandoned(metadata: Metadata) -> None:
    async def run() -> None:
        files = coordinator(metadata, Clock())
        await files.open_files.create(NewFile(path="/a", user="ann", replication=1), "client")
        block = (await files.open_files.add_block("/a", 0, "ann", "client", None)).allocated.chunk
        with pytest.raises(LeaseExpired, match="by ann, not by bob"):
            await files.open_files.abandon_block(block, "bob", "client")
        await files.open_files.recover_block(block, "ann", "client", None)
        await files.open_files.abandon_block(block, "ann", "client")
        with pytest.raises(LeaseExpired):
            await files.open_files.recover_block(block, "ann", "client", None)

    asyncio.run(run())
