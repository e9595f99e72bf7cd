"""The whole cluster in one thread under a seed, against a model that remembers what was acknowledged.

Clients write, extend, truncate, rename, delete and read while nodes crash at any point and messages are lost.
Acknowledged data must be read back byte for byte. A failed change may have happened completely or not at all. A
failing seed replays exactly: PEACEFS_SEED=n. PEACEFS_SEEDS=n plays more seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from simulation.client_steps import (
    append,
    append_from,
    delete,
    move,
    read,
    small_writes,
    truncate,
    write,
    write_small,
)
from simulation.saboteur import Saboteur
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_datanode import DISKS, SimulatedDatanode
from simulation.simulated_network import Network
from simulation.terms import CHUNK_BYTES
from support.long_runs import often

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.coordinator.cluster.membership import AdminState
from peacefs.coordinator.metadata.model import Mode
from peacefs.coordinator.operations.leases import lease_s
from peacefs.datanode.rate_limiter import copy_burst_bytes
from peacefs.protocol.errors import AlreadyBeingCreated, FileNotFound, IllegalChange, PeacefsError
from peacefs.runtime import effects as fx

_OPERATIONS = ("write", "write small", "append", "append", "read", "read", "truncate", "delete", "move")
_OPERATIONS_OF_EACH = often(36, 80)
_SIZES = (0, 1, 700, 64 * 1024, 300 * 1024, CHUNK_BYTES, 2 * CHUNK_BYTES + 5)
_SMALL_SIZES = (1, 700, 64 * 1024, 300 * 1024, CHUNK_BYTES)


@dataclass
class Model:
    """For each path, the contents that it may have; None means absent."""

    possible: dict[str, set[bytes | None]] = field(default_factory=dict)
    acknowledged: int = 0
    failed: int = 0
    reads: int = 0

    def of(self, path: str) -> set[bytes | None]:
        return self.possible.get(path, {None})

    def settle(self, path: str, content: bytes | None) -> None:
        self.possible[path] = {content}

    def doubt(self, path: str, content: bytes | None) -> None:
        self.possible[path] = self.of(path) | {content}


def busy_client(name: str, model: Model, random: Random, operations: int) -> fx.Steps[None]:
    """Change files that no other client touches, one operation after another."""
    small = small_writes(name)
    for number in range(operations):
        path = f"/{name}/{random.randrange(3)}"
        try:
            match random.choice(_OPERATIONS):
                case "write":
                    data = random.randbytes(random.choice(_SIZES))
                    yield from _write(path, data, write(path, data, f"{name}-{number}"), model)
                case "write small":
                    for _ in range(random.randint(1, 4)):
                        data = random.randbytes(random.choice(_SMALL_SIZES))
                        yield from _write(path, data, write_small(small, path, data), model)
                case "append":
                    data = random.randbytes(random.choice(_SIZES))
                    yield from _append(path, data, f"{name}-{number}", model)
                case "truncate":
                    yield from _truncate(path, random.choice(_SIZES), model)
                case "read":
                    yield from check(path, model)
                case "delete":
                    model.doubt(path, None)
                    yield from delete(path)
                    model.settle(path, None)
                case "move":
                    yield from _move(path, f"{path}-{number}", model)
            model.acknowledged += 1
        except PeacefsError:
            model.failed += 1
        yield from fx.sleep(random.uniform(0.0, 1.0))


def _write(path: str, data: bytes, writing: fx.Steps[None], model: Model) -> fx.Steps[None]:
    model.doubt(path, data)
    yield from writing
    model.settle(path, data)


def _append(path: str, data: bytes, holder: str, model: Model) -> fx.Steps[None]:
    longer: set[bytes | None] = {content + data for content in model.of(path) if content is not None}
    before, model.possible[path] = model.of(path), model.of(path) | longer
    try:
        yield from append(path, data, holder)
    except FileNotFound:
        assert None in before
        raise
    model.possible[path] = longer


def _truncate(path: str, length: int, model: Model) -> fx.Steps[None]:
    cut: set[bytes | None] = {
        content[:length] for content in model.of(path) if content is not None and len(content) >= length
    }
    before, model.possible[path] = model.of(path), model.of(path) | cut
    try:
        yield from truncate(path, length)
    except (FileNotFound, IllegalChange):
        assert any(content is None or len(content) < length for content in before)
        raise
    model.possible[path] = cut


def _move(source: str, target: str, model: Model) -> fx.Steps[None]:
    if None in model.of(source):
        return
    contents = model.of(source)
    model.doubt(source, None)
    model.possible[target] = contents | {None}
    yield from move(source, target)
    model.settle(source, None)
    model.possible[target] = contents


def check(path: str, model: Model) -> fx.Steps[None]:
    """Read a file and compare it. Its content is certain afterwards."""
    try:
        content: bytes | None = yield from read(path)
    except FileNotFound:
        content = None
    assert content in model.of(path), (
        f"{path} has {_brief(content)}, acknowledged was one of {[_brief(c) for c in model.of(path)]}"
    )
    model.settle(path, content)
    model.reads += 1


def _brief(content: bytes | None) -> str:
    return "nothing" if content is None else f"{len(content)} bytes {content[:4].hex()}"


def holders_on_disk(cluster: SimulatedCluster, chunk: int) -> list[SimulatedDatanode]:
    return [datanode for datanode in cluster.datanodes if datanode.store.find(chunk) is not None]


@pytest.mark.parametrize("seed", seeds(12))
def test_acknowledged_writes_survive_crashes_and_lost_messages(seed: int) -> None:
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed, lose=0.004)
    random = Random(seed)
    cluster.until_ready()
    saboteur = Saboteur(cluster, random, effects_between=often(220, 260))
    model = Model()
    clients = [
        cluster.start(
            cluster.client(f"client-{number}"),
            f"client-{number}",
            busy_client(f"client-{number}", model, Random(random.random()), _OPERATIONS_OF_EACH),
        )
        for number in range(3)
    ]
    for client in clients:
        cluster.world.run_task(client, limit_s=4000.0)

    saboteur.rest()
    cluster.world.network.lose = 0.0
    assert cluster.world.run(lambda: all(node.up for node in cluster.world.nodes.values()), limit_s=60.0)
    cluster.until_ready()
    assert cluster.world.run(cluster.fully_replicated, limit_s=400.0), "repair does not come to an end"
    reader = cluster.client("client-reader")
    for path in sorted(model.possible):
        cluster.world.run_task(cluster.start(reader, path, check(path, model)), limit_s=100.0)

    assert saboteur.crashes >= 3
    assert cluster.world.messages_lost > 0
    assert model.acknowledged > 1.25 * _OPERATIONS_OF_EACH
    print(
        f"{model.acknowledged} acknowledged, {model.failed} failed, {saboteur.crashes} crashes, "
        f"{cluster.world.messages_lost} messages lost, {cluster.world.effects_performed} effects, "
        f"{cluster.world.now_s:.0f} virtual seconds"
    )


def appender(path: str, name: str, acknowledged: list[bytes], tried: list[bytes]) -> fx.Steps[None]:
    """Append records to a file that others extend, too. Failed appends are not repeated."""
    for number in range(12):
        record = f"<{name}-{number}>".encode() * 3000
        tried.append(record)
        for _ in range(200):
            try:
                yield from append(path, record, f"{name}-{number}")
                acknowledged.append(record)
                break
            except AlreadyBeingCreated:
                yield from fx.sleep(0.7)
            except PeacefsError:
                break
        yield from fx.sleep(0.3)


@pytest.mark.parametrize("seed", seeds(6))
def test_records_of_many_appenders_are_there_once_and_whole_in_some_order(seed: int) -> None:
    """The coordinator and datanodes crash meanwhile: leases are lost, broken, and taken again."""
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed)
    cluster.until_ready()
    writer = cluster.client("client-writer")
    cluster.world.run_task(cluster.start(writer, "create", write("/log", b"", "create")), limit_s=60.0)
    cluster.world.network.lose = 0.003
    saboteur = Saboteur(cluster, Random(seed), effects_between=250)
    acknowledged: list[bytes] = []
    tried: list[bytes] = []
    tasks = [
        cluster.start(cluster.client(f"client-{n}"), f"{n}", appender("/log", f"{n}", acknowledged, tried))
        for n in range(3)
    ]
    for task in tasks:
        cluster.world.run_task(task, limit_s=9000.0)
    saboteur.rest()
    cluster.world.network.lose = 0.0
    assert cluster.world.run(lambda: all(node.up for node in cluster.world.nodes.values()), limit_s=60.0)
    cluster.until_ready()
    content = cluster.world.run_task(cluster.start(writer, "read", read("/log")), limit_s=100.0)
    missing = [record[:8] for record in acknowledged if content.count(record) != 1]
    assert not missing, "acknowledged, and not there once"
    for record in tried:
        assert content.count(record) <= 1
        content = content.replace(record, b"")
    assert content == b"", "nothing is there by half"
    assert saboteur.crashes >= 1
    assert acknowledged
    print(f"{len(acknowledged)} of {len(tried)} acknowledged, {saboteur.crashes} crashes")


def test_a_slow_writer_keeps_its_lease_and_a_dead_one_loses_it() -> None:
    cluster = SimulatedCluster(seed=5)
    cluster.until_ready()
    slow, other = cluster.client("client-slow"), cluster.client("client-other")
    cluster.world.run_task(cluster.start(slow, "create", write("/f", b"1", "create")), limit_s=60.0)
    stream = ByteStream()
    appending = cluster.start(slow, "append", append_from("/f", stream, "slow"))

    def refused() -> bool:
        task = cluster.start(other, "append", append("/f", b"3", "other"))
        try:
            cluster.world.run_task(task, limit_s=60.0)
        except AlreadyBeingCreated:
            return True
        return False

    for _ in range(4):
        cluster.world.run(lambda: False, limit_s=0.9 * lease_s)
        assert refused()
    stream.feed(b"2")
    cluster.world.run(lambda: False, limit_s=1.2 * lease_s)
    assert refused(), "its chunk is not full: it waits for more in the middle of it"
    stream.finish()
    cluster.world.run_task(appending, limit_s=60.0)

    cluster.start(slow, "append", append_from("/f", ByteStream(), "slow"))
    cluster.world.run(lambda: False, limit_s=5.0)
    cluster.world.crash(slow)
    assert refused()
    cluster.world.run(lambda: False, limit_s=lease_s)
    assert not refused()
    reading = cluster.start(other, "read", read("/f"))
    assert cluster.world.run_task(reading, limit_s=60.0) == b"123"


@pytest.mark.evidence("acknowledged-is-durable")
def test_a_datanode_that_never_comes_back_is_made_up_for() -> None:
    cluster = SimulatedCluster(seed=1)
    cluster.until_ready()
    client = cluster.client("client")
    data = Random(1).randbytes(2 * CHUNK_BYTES + 77)
    cluster.world.run_task(cluster.start(client, "write", write("/f", data, "w")), limit_s=60.0)
    chunks = [record.chunk for record in cluster.coordinator.metadata.reader().chunks(0, 10)]
    assert len(chunks) == 3
    victim = holders_on_disk(cluster, chunks[0])[0]
    victim.crash()
    held = cluster.coordinator.cluster.chunks.held_by(victim.node.name)
    assert cluster.world.run(
        lambda: cluster.coordinator.cluster.replicas_lost_total == held and cluster.fully_replicated(),
        limit_s=60.0,
    )
    for chunk in chunks:
        assert len([node for node in holders_on_disk(cluster, chunk) if node is not victim]) == 3
    assert cluster.world.run_task(cluster.start(client, "read", read("/f")), limit_s=60.0) == data


def test_repair_keeps_to_the_rate_of_each_datanode_and_comes_to_its_end() -> None:
    def seconds_of_repair(copy_rate: float) -> tuple[float, int]:
        cluster = SimulatedCluster(seed=6, copy_rate=copy_rate)
        cluster.until_ready()
        client = cluster.client("client")
        for number in range(12):
            data = Random(number).randbytes(8 * CHUNK_BYTES)
            writing = cluster.start(client, "write", write(f"/f{number}", data, f"{number}"))
            cluster.world.run_task(writing, limit_s=60.0)
        victim = cluster.datanodes[0]
        lost = len(victim.store.replicas())
        victim.crash()
        cluster.world.run(lambda: cluster.coordinator.cluster.replicas_lost_total == lost, limit_s=60.0)
        began_s = cluster.world.now_s
        assert cluster.world.run(cluster.fully_replicated, limit_s=600.0)
        assert cluster.coordinator.cluster.repair.repaired_total == lost
        return cluster.world.now_s - began_s, lost * CHUNK_BYTES

    # So slow that a packet takes longer than the silence after which a hop gives up.
    copy_rate = CHUNK_BYTES / 6
    slow_s, lost_bytes = seconds_of_repair(copy_rate)
    at_least_s = (lost_bytes / 3 - copy_burst_bytes) / copy_rate
    assert at_least_s > 30.0
    assert at_least_s <= slow_s < 3 * at_least_s
    assert seconds_of_repair(100 * CHUNK_BYTES)[0] < at_least_s / 2


def test_a_disk_that_breaks_down_is_made_up_for_while_its_datanode_goes_on() -> None:
    cluster = SimulatedCluster(seed=7)
    cluster.until_ready()
    client = cluster.client("client")
    contents = {f"/f{n}": Random(n).randbytes(CHUNK_BYTES // 2) for n in range(12)}
    for path, data in contents.items():
        cluster.world.run_task(cluster.start(client, "write", write(path, data, path)), limit_s=60.0)
    victim = cluster.datanodes[0]
    held = len(victim.store.replicas())
    victim.node.disk.break_down(DISKS[0])

    def read_all() -> None:
        for path, data in contents.items():
            reading = cluster.start(client, "read", read(path))
            assert cluster.world.run_task(reading, limit_s=60.0) == data

    for _ in range(20):
        read_all()
        if len(victim.store.working) == 1:
            break
    lost = held - len(victim.store.replicas())
    assert 0 < lost < held, "the other disk goes on"
    repair = cluster.coordinator.cluster.repair
    assert cluster.world.run(lambda: repair.repaired_total == lost and cluster.fully_replicated(), limit_s=120.0)
    member = cluster.coordinator.cluster.members.get(victim.node.name)
    assert member is not None and member.state.value == "alive"
    read_all()


@pytest.mark.parametrize("one_host", [0.0, 1.0], ids=["from afar", "short-circuit"])
@pytest.mark.evidence("checksums-hold")
def test_a_reader_never_gets_bytes_that_rotted_and_the_replica_is_replaced(one_host: float) -> None:
    cluster = SimulatedCluster(seed=2, network=Network(one_host=one_host))
    cluster.until_ready()
    client = cluster.client("client")
    data = Random(2).randbytes(CHUNK_BYTES)
    cluster.world.run_task(cluster.start(client, "write", write("/f", data, "w")), limit_s=60.0)
    (record,) = cluster.coordinator.metadata.reader().chunks(0, 10)
    victims = holders_on_disk(cluster, record.chunk)[:2]
    for victim in victims:
        (path,) = [path for path, content in victim.node.disk.files() if data[:64] in content]
        victim.node.disk.flip_bit(path, 70_000)
    for _ in range(30):
        assert cluster.world.run_task(cluster.start(client, "read", read("/f")), limit_s=60.0) == data
        cluster.world.run(lambda: False, limit_s=2.0)
        if cluster.coordinator.cluster.repair.repaired_total == len(victims):
            break
    assert cluster.world.run(cluster.fully_replicated, limit_s=100.0)
    assert cluster.coordinator.cluster.repair.repaired_total == len(victims)
    assert (cluster.world.files_shared > 0) == bool(one_host)
    good = [
        node
        for node in holders_on_disk(cluster, record.chunk)
        if data in b"".join(c for _p, c in node.node.disk.files())
    ]
    assert len(good) == 3


@pytest.mark.parametrize("length", [300, CHUNK_BYTES], ids=["small", "large"])
@pytest.mark.evidence("checksums-hold")
def test_a_replica_that_rots_and_is_never_read_is_found_and_replaced(length: int) -> None:
    cluster = SimulatedCluster(seed=4)
    cluster.until_ready()
    client = cluster.client("client")
    data = Random(4).randbytes(length)
    cluster.world.run_task(cluster.start(client, "write", write("/f", data, "w")), limit_s=60.0)
    (record,) = cluster.coordinator.metadata.reader().chunks(0, 10)
    victim = holders_on_disk(cluster, record.chunk)[0]
    (path,) = [path for path, content in victim.node.disk.files() if data in content]
    (content,) = [content for each, content in victim.node.disk.files() if each == path]
    victim.node.disk.flip_bit(path, content.index(data) + 123)
    assert cluster.world.run(lambda: cluster.coordinator.cluster.repair.repaired_total == 1, limit_s=120.0)
    assert cluster.world.run(cluster.fully_replicated, limit_s=10.0)
    cluster.world.run(lambda: False, limit_s=10.0)
    holders = holders_on_disk(cluster, record.chunk)
    assert len(holders) == 3
    for holder in holders:
        assert any(data in content for _path, content in holder.node.disk.files())


@pytest.mark.evidence("drained-node-lost")
def test_a_datanode_is_drained_while_clients_write_and_can_leave_for_good() -> None:
    cluster = SimulatedCluster(seed=5, datanodes=5, lose=0.002)
    cluster.until_ready()
    model = Model()
    client = cluster.client("client")
    work = cluster.start(client, "client", busy_client("client", model, Random(5), operations=60))
    cluster.world.run(lambda: model.acknowledged > 10, limit_s=400.0)
    coordinator, victim = cluster.coordinator, cluster.datanodes[0]
    decision = coordinator.files.administration.decide(victim.node.name, Mode.DECOMMISSION)
    cluster.world.run_task(cluster.world.spawn(coordinator.node, "decommission", decision), limit_s=10.0)
    # The change stands although the coordinator has lost everything that was not on its disk.
    coordinator.crash()
    coordinator.start()

    def drained() -> bool:
        node = coordinator.cluster.members.get(victim.node.name)
        return node is not None and coordinator.cluster.admin_state_of(node) is AdminState.DECOMMISSIONED

    cluster.world.run_task(work, limit_s=4000.0)
    cluster.world.network.lose = 0.0
    assert cluster.world.run(drained, limit_s=400.0), "draining does not come to an end"
    victim.crash()
    cluster.world.run(lambda: False, limit_s=20.0)
    assert cluster.fully_replicated(), "something depended on the datanode that was drained"
    reader = cluster.client("client-reader")
    for path in sorted(model.possible):
        cluster.world.run_task(cluster.start(reader, path, check(path, model)), limit_s=100.0)
    assert model.acknowledged > 20


def test_the_same_seed_plays_the_same_story() -> None:
    def story() -> tuple[float, int, int]:
        cluster = SimulatedCluster(seed=3, lose=0.01)
        cluster.until_ready()
        saboteur = Saboteur(cluster, Random(3), effects_between=500)
        client = cluster.client("client")
        model = Model()
        task = cluster.start(client, "client", busy_client("client", model, Random(3), operations=15))
        cluster.world.run_task(task, limit_s=2000.0)
        return cluster.world.now_s, cluster.world.effects_performed, saboteur.crashes

    first = story()
    assert first == story()
    assert first[2] > 0
