"""A slow hop is measured by its predecessor, no other is blamed, and the writer's source waits."""

from __future__ import annotations

import os
import threading
import time

from peacefs.client.limits import stream_buffer_bytes
from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.datanode.pipeline.latency_samples import LatencySamples, latency_peers_max, latency_window_s
from peacefs.protocol.limits import MIB
from peacefs.runtime.effects import AppendToFile, Sync

BLOCK_BYTES = 8 * MIB


def hold_up(node, kind, wait):
    """Call `wait` before each effect of this kind on a node's disk."""
    perform = node.driver._perform[kind]

    def held_up(effect):
        wait()
        return perform(effect)

    node.driver._perform[kind] = held_up


def samples(node):
    return {sample.node: sample.seconds for sample in node.samples.lately(time.monotonic())}


def test_slow_peer_is_measured_by_its_predecessor_and_not_blamed_on_that(make_cluster):
    cluster = make_cluster()
    first, middle, last = cluster.nodes
    hold_up(last, AppendToFile, lambda: time.sleep(0.1))
    for _ in range(3):
        cluster.write(os.urandom(1 * MIB))
    of_first, of_middle, of_last = samples(first), samples(middle), samples(last)
    assert of_middle["n2"] > 0.1
    assert of_last["n2"] > 0.1, "its own disk"
    assert of_first["n1"] < of_middle["n2"] / 2
    assert max(of_first["n0"], of_middle["n1"]) < of_last["n2"] / 2
    assert set(of_first) == {"n0", "n1"} and set(of_last) == {"n2"}


def test_a_source_that_brings_little_makes_no_hop_look_slow(make_cluster):
    cluster = make_cluster()
    for _ in range(2):
        stream = ByteStream()
        stream.feed(os.urandom(MIB))
        threading.Timer(0.6, stream.finish).start()
        cluster.write(stream)
    for node in cluster.nodes:
        assert all(seconds < 0.5 for seconds in samples(node).values())


def test_the_source_waits_for_the_slowest_hop_and_what_is_held_in_memory_is_bounded(make_cluster, until):
    cluster = make_cluster()
    released = threading.Event()
    hold_up(cluster.nodes[2], Sync, lambda: released.wait(9))
    pieces = [os.urandom(MIB) for _ in range(40)]
    stream = ByteStream()
    fed = []
    waiting_since: list[float | None] = [None]

    def produce():
        for piece in pieces:
            room = stream.feed(piece)
            fed.append(len(piece))
            if room is not None:
                ready = threading.Event()
                room.when_fired(ready.set)
                waiting_since[0] = time.monotonic()
                ready.wait()
                waiting_since[0] = None
        stream.finish()

    producer = threading.Thread(target=produce)
    writer = threading.Thread(target=cluster.write, args=(stream, BLOCK_BYTES))
    producer.start()
    writer.start()
    until(
        lambda: waiting_since[0] is not None and time.monotonic() - waiting_since[0] > 0.5, "the producer is held"
    )
    assert sum(fed) <= BLOCK_BYTES + stream_buffer_bytes + MIB
    released.set()
    for thread in (producer, writer):
        thread.join()
    assert cluster.read() == b"".join(pieces)


def test_paces_are_of_late_and_count_a_small_chunk_for_a_mebibyte():
    kept = LatencySamples()
    assert kept.lately(1.0) == []
    for _ in range(4):
        kept.took(1.0, "n1", 0.5, 100)
    kept.took(1.0, "n1", 0.5, 6 * MIB)
    (sample,) = kept.lately(2.0)
    assert (sample.node, sample.chunks, sample.seconds) == ("n1", 5, 0.5 * 5 / 10)
    assert kept.lately(2.0 + latency_window_s) == [sample]
    assert kept.lately(2.0 + 2 * latency_window_s) == []


def test_paces_of_more_peers_than_a_cluster_has_are_not_kept():
    kept = LatencySamples()
    for number in range(latency_peers_max + 10):
        kept.took(1.0, f"n{number}", 0.1, 1)
    assert len(kept.lately(1.0)) == latency_peers_max
