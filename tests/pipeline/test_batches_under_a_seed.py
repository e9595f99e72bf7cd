"""Many small chunks through random pipelines, some of whose datanodes are dead, full, broken or slow.

A model of a few lines says what becomes of each chunk: a batch may not make a difference.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from random import Random

import pytest
from msgspec.structs import replace
from support.long_runs import often

from peacefs.client.transfer.chunk_batches import read_chunks, send_chunks
from peacefs.protocol.errors import AccessDenied, PeacefsError
from peacefs.protocol.messages import ChunkLayout, WrittenChunk
from peacefs.protocol.tokens import ChunkRead
from peacefs.runtime import effects as fx

NODES = ["n0", "n1", "n2", "n3"]
FAULTS = ["dead", "full", "broken", "slow", "slow", ""]


def break_node(node, fault):
    perform = dict(node.driver._perform)

    def fails(number):
        def fail(effect):
            raise OSError(number, os.strerror(number))

        return fail

    def slowly(effect):
        time.sleep(0.03)
        perform[fx.Sync](effect)

    match fault:
        case "dead":
            node.relay.die()
        case "full":
            node.driver._perform[fx.AppendToFile] = fails(errno.ENOSPC)
        case "broken":
            node.driver._perform[fx.Sync] = fails(errno.EIO)
        case "slow":
            node.driver._perform[fx.Sync] = slowly


def routes(random: Random) -> Iterator[list[str]]:
    while True:
        yield random.sample(NODES, random.randint(1, 3))


@pytest.mark.parametrize("seed", range(often(4, 60)))
@pytest.mark.evidence("acknowledged-is-durable", "checksums-hold", "disk-full", "eio")
def test_a_batch_makes_no_difference_to_what_becomes_of_a_chunk(make_cluster, until, seed):
    random, cluster = Random(seed), make_cluster(nodes=len(NODES))
    for name in NODES:
        cluster.driver.run(send_chunks([(cluster.coordinator.allocated([name]), b"a segment to append to")]))
    faults = {name: fault for name in random.sample(NODES, 2) if (fault := random.choice(FAULTS))}
    print(f"seed {seed}: {faults}")
    for name, fault in faults.items():
        break_node(cluster.coordinator.nodes[name], fault)
    failing = {name for name, fault in faults.items() if fault != "slow"}
    dead = {name for name, fault in faults.items() if fault == "dead"}
    for _batch in range(3):
        plan = [
            (route, random.random() < 0.1, random.randbytes(random.choice((0, 1, 100, 4000))))
            for _, route in zip(range(random.randint(1, 64)), routes(random), strict=False)
        ]
        allocated = [cluster.coordinator.allocated(route) for route, _is_forged, _data in plan]
        chunks = [
            (replace(each, token=allocated[0].token[:-8] + "AAAAAAAA") if is_forged else each, data)
            for each, (_route, is_forged, data) in zip(allocated, plan, strict=True)
        ]
        written = cluster.driver.run(send_chunks(chunks))
        for (route, is_forged, data), one in zip(plan, written, strict=True):
            if route[0] in dead:
                assert isinstance(one, PeacefsError) and one.culprit == route[0]
            elif is_forged:
                assert isinstance(one, AccessDenied), one
            elif failing & set(route):
                assert isinstance(one, PeacefsError) and one.culprit in failing & set(route), one
            else:
                assert isinstance(one, WrittenChunk), one
                assert [receipt.node for receipt in one.receipts] == route
                cluster.coordinator.verify(one)
                assert one.length == len(data)
        held = [
            (one, name, data)
            for (route, _is_forged, data), one in zip(plan, written, strict=True)
            for name in route
            if isinstance(one, WrittenChunk) and data
        ]
        read = cluster.driver.run(
            read_chunks(
                [
                    ChunkLayout(
                        one.chunk,
                        one.version,
                        one.length,
                        cluster.signer.sign(ChunkRead(4e9, one.chunk)),
                        [cluster.coordinator.nodes[name].hop],
                    )
                    for one, name, _data in held
                ]
            )
        )
        assert read == [data for _one, _name, data in held]
    until(lambda: not any(node.requests.streams for node in cluster.nodes), "nothing is under way")
