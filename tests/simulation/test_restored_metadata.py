"""A coordinator whose metadata was lost and restored from an older backup.

Whatever datanodes hold from the time after the backup stays until an administrator releases the floor, however
long the restored coordinator runs. No number is assigned twice.
"""

from __future__ import annotations

from random import Random

import apsw
import pytest
from simulation.client_steps import read, write
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_datanode import SimulatedDatanode
from simulation.terms import LOOK_S

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.protocol.errors import FileNotFound, PeacefsError, ServiceUnready
from peacefs.protocol.messages import Replica

_TOKENS_LIVE_S = 40.0
Held = set[tuple[str, int, int]]


def cluster_with_short_lived_tokens(seed: int) -> SimulatedCluster:
    cluster = SimulatedCluster(seed)
    cluster.coordinator.tokens_live_s = _TOKENS_LIVE_S
    crash_and_start(cluster)
    return cluster


def crash_and_start(cluster: SimulatedCluster, backup: apsw.Connection | None = None) -> None:
    cluster.coordinator.crash()
    if backup is not None:
        cluster.coordinator.restore(backup)
    cluster.coordinator.start()
    cluster.until_ready()


def accept_loss(cluster: SimulatedCluster) -> bool:
    """Accept missing commits, as an operator. Return True if any were missing."""
    coordinator = cluster.coordinator
    accepting = cluster.world.spawn(coordinator.node, "accepting", coordinator.parts.epochs.accept_loss())
    accepted: bool = cluster.world.run_task(accepting, limit_s=60.0)
    return accepted


def write_files(cluster: SimulatedCluster, name: str, count: int, random: Random) -> dict[str, bytes]:
    client = cluster.client(f"client-{name}")
    written = {f"/{name}/{number}": random.randbytes(random.choice((700, 400_000))) for number in range(count)}
    for path, data in written.items():
        cluster.world.run_task(cluster.start(client, path, write(path, data, path)), limit_s=60.0)
    return written


def content(cluster: SimulatedCluster, path: str) -> bytes:
    client = cluster.world.nodes.get("reader") or cluster.client("reader")
    data: bytes = cluster.world.run_task(cluster.start(client, path, read(path)), limit_s=60.0)
    return data


def let_pass(cluster: SimulatedCluster, seconds: float) -> None:
    cluster.world.run(lambda: False, limit_s=seconds)


def held(cluster: SimulatedCluster) -> Held:
    """Return every replica on every disk, as (node, chunk, version)."""

    def of(datanode: SimulatedDatanode) -> list[Replica]:
        return list(datanode.store.replicas())

    return {(node.node.name, replica.chunk, replica.version) for node in cluster.datanodes for replica in of(node)}


def numbers(replicas: Held) -> set[int]:
    return {number for _node, chunk, version in replicas for number in (chunk, version)}


@pytest.mark.parametrize("seed", range(1, 7))
@pytest.mark.parametrize("restarts", [0, 2], ids=["in the epoch of the backup", "epochs later"])
@pytest.mark.evidence("return-is-harmless")
def test_nothing_that_datanodes_hold_is_lost_and_no_number_comes_twice(seed: int, restarts: int) -> None:
    cluster, random = cluster_with_short_lived_tokens(seed), Random(seed)
    known = write_files(cluster, "known", 4, random)
    backup = cluster.coordinator.back_up()
    unknown = write_files(cluster, "unknown", 4, random)
    for turn in range(restarts):
        crash_and_start(cluster)
        unknown |= write_files(cluster, f"unknown-{turn}", 2, random)
    let_pass(cluster, 10.0)
    before = held(cluster)

    crash_and_start(cluster, backup)
    later = write_files(cluster, "later", 4, random)
    let_pass(cluster, 5 * _TOKENS_LIVE_S)
    assert before <= held(cluster), "the restored coordinator had replicas deleted that it did not know"
    assert not numbers(before) & numbers(held(cluster) - before), "a number was drawn twice"
    for path, data in {**known, **later}.items():
        assert content(cluster, path) == data
    for path in unknown:
        with pytest.raises(FileNotFound):
            content(cluster, path)
    counts = cluster.coordinator.cluster.chunks.unreferenced.counts(cluster.coordinator.epochs.numbering.epoch)
    assert counts.chunks == counts.chunks_of_earlier_epochs == len(unknown)


@pytest.mark.parametrize("seed", range(1, 4))
def test_chunks_kept_by_the_floor_go_after_its_release_and_nothing_else(seed: int) -> None:
    cluster, random = cluster_with_short_lived_tokens(seed), Random(seed)
    known = write_files(cluster, "known", 4, random)
    backup = cluster.coordinator.back_up()
    let_pass(cluster, 5.0)
    before = held(cluster)
    write_files(cluster, "unknown", 4, random)
    crash_and_start(cluster, backup)
    later = write_files(cluster, "later", 2, random)
    let_pass(cluster, 2 * _TOKENS_LIVE_S)
    everything = held(cluster)

    assert run_now(cluster.coordinator.metadata, lambda tx: tx.release_gc_floor())
    assert cluster.world.run(lambda: held(cluster) < everything, limit_s=3 * _TOKENS_LIVE_S, look_s=LOOK_S)
    let_pass(cluster, 60.0)
    assert before <= held(cluster)
    for path, data in {**known, **later}.items():
        assert content(cluster, path) == data
    unreferenced = cluster.coordinator.cluster.chunks.unreferenced
    assert unreferenced.counts(0).replicas == 0


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_backup_restored_twice_harms_nothing_of_the_first_time_while_a_datanode_is_away(seed: int) -> None:
    cluster, random = cluster_with_short_lived_tokens(seed), Random(seed)
    write_files(cluster, "known", 2, random)
    backup = cluster.coordinator.back_up()
    crash_and_start(cluster, backup)
    known = held(cluster)
    write_files(cluster, "first", 4, random)
    let_pass(cluster, 10.0)
    before = held(cluster) - known
    away = cluster.datanodes[0]
    away.crash()
    cluster.coordinator.crash()
    cluster.coordinator.restore(backup)
    cluster.coordinator.start()
    assert cluster.world.run(lambda: cluster.coordinator.cluster.ready(cluster.world.now_s), limit_s=60.0)
    # The store of the first restore is gone, but datanodes may remember later commits from it.
    accept_loss(cluster)
    later = write_files(cluster, "second", 4, random)
    away.start()
    cluster.until_ready()
    let_pass(cluster, 3 * _TOKENS_LIVE_S)
    assert before <= held(cluster)
    assert not numbers(before) & numbers(held(cluster) - before)
    for path, data in later.items():
        assert content(cluster, path) == data


@pytest.mark.evidence("older-backup")
def test_a_copy_put_back_by_hand_is_found_out_by_what_datanodes_remember() -> None:
    """Changes are refused until an operator decides to continue without the missing commits."""
    cluster, random = cluster_with_short_lived_tokens(seed=7), Random(7)
    write_files(cluster, "known", 2, random)
    by_hand = cluster.coordinator.back_up()
    crash_and_start(cluster)
    write_files(cluster, "unknown", 4, random)
    let_pass(cluster, 10.0)
    before = held(cluster)
    cluster.coordinator.crash()
    # Its next epoch is the one in which the files that it has lost were written.
    cluster.coordinator.put_back(by_hand)
    cluster.coordinator.start()
    cluster.until_ready()
    with pytest.raises(ServiceUnready, match="commits of the coordinator's metadata are missing"):
        write_files(cluster, "refused", 1, random)
    assert accept_loss(cluster)
    write_files(cluster, "later", 4, random)
    let_pass(cluster, 5 * _TOKENS_LIVE_S)
    assert before <= held(cluster)
    assert not numbers(before) & numbers(held(cluster) - before)
    assert cluster.coordinator.metadata.reader().gc_floor_held()


def test_garbage_of_failed_writes_goes_where_nothing_was_restored() -> None:
    cluster, random = cluster_with_short_lived_tokens(seed=8), Random(8)
    known = write_files(cluster, "known", 2, random)
    let_pass(cluster, 5.0)
    good = held(cluster)
    client = cluster.client("client-that-dies")
    task = cluster.start(client, "write", write("/never", random.randbytes(400_000), "never"))
    assert cluster.world.run(lambda: held(cluster) > good, limit_s=60.0)
    cluster.world.crash(client)
    assert not task.done
    assert cluster.world.run(lambda: held(cluster) == good, limit_s=5 * _TOKENS_LIVE_S, look_s=LOOK_S)
    for path, data in known.items():
        assert content(cluster, path) == data
    with pytest.raises(PeacefsError):
        content(cluster, "/never")
