"""Files under construction through gateways, while others look for them, rename them, and nodes crash."""

from __future__ import annotations

from random import Random

import pytest
from simulation.client_requests import CreateOverWebHdfs, Redirected, Stat, Stated
from simulation.client_steps import move, read
from simulation.saboteur import Saboteur
from simulation.seeds import seeds
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_gateway import SimulatedUpload
from simulation.terms import CALL_TIMEOUT_S
from simulation.test_flushing_under_a_seed import patiently

from peacefs.protocol.errors import FileNotFound, PeacefsError
from peacefs.runtime import effects as fx


class Story:
    """A file, its writer and its upload."""

    def __init__(self, cluster: SimulatedCluster, seed: int, path: str = "/log") -> None:
        self.cluster = cluster
        self.path = path
        self.random = Random(seed)
        self.upload: SimulatedUpload | None = None
        self.sent = b""
        self.completed = False

    def create(self, request_id: str) -> fx.Steps[None]:
        """Send the first step, and start the second step a little later."""
        wanted = CreateOverWebHdfs(self.path, request_id)
        redirected = yield from patiently(fx.call(wanted, Redirected, timeout_s=CALL_TIMEOUT_S))
        yield from fx.sleep(self.random.uniform(0.0, 0.3))
        datanode = self.cluster.coordinator.datanodes[redirected.node]
        self.upload = SimulatedUpload(self.cluster.world, redirected.token, f"writer {request_id}")
        names = (request_id, self.upload.flusher.holder)
        datanode.gateway.uploads.update(dict.fromkeys(names, self.upload))
        self.task = self.cluster.start(datanode.node, "an upload", patiently(self.upload.carry()))

    def write(self, request_id: str, pieces: int, pause_max_s: float) -> fx.Steps[None]:
        yield from self.create(request_id)
        assert self.upload is not None
        for number in range(pieces):
            piece = f"<{number}>".encode() * self.random.choice((1, 10, 1000))
            self.sent += piece
            self.upload.feed(piece)
            yield from fx.sleep(self.random.uniform(0.0, pause_max_s))
        self.upload.end()

    def check(self, content: bytes, at_least: int) -> None:
        assert self.sent.startswith(content), "what is there was never written, or not in this order"
        assert len(content) >= at_least, "what was there has gone"

    def look(self, path: str) -> fx.Steps[int]:
        """Return the length of the file, or -1 if there is none."""
        try:
            return (yield from fx.call(Stat(path), Stated, timeout_s=CALL_TIMEOUT_S)).length
        except FileNotFound:
            return -1


@pytest.mark.parametrize("seed", seeds(6))
def test_file_under_construction_is_seen_with_all_that_has_come_by_whoever_looks(seed: int) -> None:
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed)
    cluster.until_ready()
    story = Story(cluster, seed)
    writing = cluster.start(cluster.client("client-writer"), "writer", story.write("log", 30, 0.4))
    looker = cluster.client("client-looker")
    cluster.world.run(lambda: story.upload is not None, limit_s=60.0)
    seen = 0
    while not writing.done:
        before = len(story.sent)
        length = cluster.world.run_task(cluster.start(looker, "look", story.look("/log")), limit_s=60.0)
        assert length >= before, "it shows less than had come when it was looked for"
        content = cluster.world.run_task(cluster.start(looker, "read", read("/log")), limit_s=60.0)
        story.check(content, max(length, seen))
        seen = len(content)
        pause_s = story.random.uniform(0.0, 1.5)
        cluster.world.run(lambda: False, limit_s=pause_s)
    cluster.world.run_task(story.task, limit_s=60.0)
    assert cluster.world.run_task(cluster.start(looker, "read", read("/log")), limit_s=60.0) == story.sent


@pytest.mark.parametrize("seed", seeds(6))
def test_upload_is_completed_whole_whatever_crashes_while_others_look_and_rename(seed: int) -> None:
    """The gateway's datanode stays up. The coordinator crashes, and forgets which files were begun."""
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed, lose=0.002)
    cluster.until_ready()
    story = Story(cluster, seed)
    saboteur = Saboteur(cluster, Random(seed), effects_between=500)
    coordinator_alone = saboteur._before_effect

    def spare_datanodes(node: object, effect: fx.Effect) -> None:
        if node is cluster.coordinator.node:
            coordinator_alone(cluster.coordinator.node, effect)

    cluster.world.before_effect = spare_datanodes
    path, seen = "/log", 0
    cluster.start(cluster.client("client-writer"), "writer", story.write("log", 40, 1.0))
    looker = cluster.client("client-looker")
    cluster.world.run(lambda: story.upload is not None, limit_s=200.0)
    while not story.task.done:
        try:
            content = cluster.world.run_task(cluster.start(looker, "read", read(path)), limit_s=200.0)
        except FileNotFound:
            assert not seen
        except PeacefsError:
            pass
        else:
            story.check(content, seen)
            seen = len(content)
            if story.random.random() < 0.1:
                target = f"/log-{len(content)}"
                try:
                    steps = patiently(move(path, target))
                    cluster.world.run_task(cluster.start(looker, "move", steps), limit_s=400.0)
                except PeacefsError as fault:
                    print(f"not renamed: {fault}")
                else:
                    path = target
        cluster.world.run(lambda: story.task.done, limit_s=0.7)
    saboteur.rest()
    cluster.world.network.lose = 0.0
    assert story.task.error is None, story.task.error
    assert cluster.world.run(lambda: all(node.up for node in cluster.world.nodes.values()), limit_s=60.0)
    cluster.until_ready()
    content = cluster.world.run_task(cluster.start(looker, "read", patiently(read(path))), limit_s=200.0)
    assert content == story.sent
    print(f"{saboteur.crashes} crashes, {len(content)} bytes, at {path}")


@pytest.mark.parametrize("seed", seeds(3))
def test_name_that_was_begun_before_the_coordinator_crashed_is_completed_as_ever(seed: int) -> None:
    print(f"seed {seed}")
    cluster = SimulatedCluster(seed)
    cluster.until_ready()
    story = Story(cluster, seed)
    client = cluster.client("client-writer")
    cluster.world.run_task(cluster.start(client, "create", story.create("log")), limit_s=60.0)
    cluster.coordinator.crash()
    cluster.coordinator.start()
    cluster.until_ready()
    assert story.upload is not None
    story.sent = b"whole"
    story.upload.feed(b"whole")
    story.upload.end()
    cluster.world.run_task(story.task, limit_s=200.0)
    assert cluster.world.run_task(cluster.start(client, "read", read("/log")), limit_s=60.0) == b"whole"
