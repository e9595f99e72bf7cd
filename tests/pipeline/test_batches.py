"""Small requests in batches: each gets one answer, and one that fails does not affect the others."""

from __future__ import annotations

import errno
import os
import threading
import time
from random import Random

import pytest

from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.frames import Frame
from peacefs.protocol.messages import Failure, Packet, ReadChunk, WriteAck, WriteChunk
from peacefs.protocol.tokens import ChunkRead, ChunkWrite, Signer
from peacefs.runtime import effects as fx
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.disk_files import DiskFile

ALL = ["n0", "n1", "n2"]


def opening_of(allocated, data, *, sums=None, token=None):
    return WriteChunk(
        token or allocated.token, allocated.chunk, allocated.version, sums or block_checksums(data), True
    )


def ask(cluster, connection, requests):
    """Send requests at once, tagged from 1; return the answers by tag."""
    frames = [Frame(message, data, tag) for tag, (message, data) in enumerate(requests, 1)]
    cluster.driver.run(fx.send_frames(connection, frames, timeout_s=10.0))
    answers = {}
    while len(answers) < len(requests):
        for frame in cluster.driver.run(fx.receive_frames(connection, timeout_s=30.0)):
            assert frame.tag not in answers
            answers[frame.tag] = frame.message, bytes(frame.payload)
    return answers


def contents(count):
    random = Random(count)
    return [random.randbytes(random.randint(0, 3000)) for _ in range(count)]


def write(cluster, nodes, data):
    """Write chunks with these contents as one batch. Return the allocated chunks and the answers."""
    allocated = [cluster.coordinator.allocated(nodes) for _ in data]
    answers = ask(
        cluster,
        cluster.connect(nodes[0]),
        [(opening_of(each, content), content) for each, content in zip(allocated, data, strict=True)],
    )
    return allocated, [answers[tag][0] for tag in range(1, len(data) + 1)]


def reading(cluster, chunk, length, token=None):
    token = token or cluster.signer.sign(ChunkRead(2e9 * 2, chunk))
    return ReadChunk(token, chunk, 1, 0, length)


def count_syncs(node):
    synced = []
    sync = node.driver._perform[fx.Sync]

    def counted(effect):
        synced.append(effect)
        sync(effect)

    node.driver._perform[fx.Sync] = counted
    return synced


def test_chunks_that_come_together_are_synced_together_and_acknowledged_by_their_tags(make_cluster):
    cluster = make_cluster()
    cluster.write(b"a segment to append to")
    synced = [count_syncs(node) for node in cluster.nodes]
    data = contents(40)
    allocated, answers = write(cluster, ALL, data)
    for each, content, ack in zip(allocated, data, answers, strict=True):
        assert isinstance(ack, WriteAck)
        assert (ack.chunk, ack.version, ack.length) == (each.chunk, each.version, len(content))
        assert [receipt.node for receipt in ack.receipts] == ALL
        for receipt in ack.receipts:
            cluster.signer.verify_receipt(receipt, ack.chunk, ack.version, ack.length, ack.checksum)
    # The 40 chunks arrive in four or five reads of 16 KiB. Chunks that arrive during a sync share the next sync.
    assert all(0 < len(each) < 10 for each in synced), [len(each) for each in synced]
    for name in ALL:
        read = ask(
            cluster,
            cluster.connect(name),
            [
                (reading(cluster, each.chunk, 4000), b"")
                for each, content in zip(allocated, data, strict=True)
                if content
            ],
        )
        assert sorted(payload for _, payload in read.values()) == sorted(filter(None, data))
        assert all(isinstance(packet, Packet) and packet.last for packet, _ in read.values())


@pytest.mark.evidence("acknowledged-is-durable", "checksums-hold")
def test_a_chunk_that_is_refused_is_refused_alone(cluster, until):
    data = contents(6)
    good, forged, damaged, old, foreign, last = allocated = [cluster.coordinator.allocated(ALL) for _ in data]
    # Only the second hop already holds a newer version of `old`.
    newer = cluster.signer.sign(
        ChunkWrite(2e9 * 2, old.chunk, old.version + 1, [cluster.coordinator.nodes["n1"].hop])
    )
    ask(
        cluster,
        cluster.connect("n1"),
        [(WriteChunk(newer, old.chunk, old.version + 1, block_checksums(b"newer"), True), b"newer")],
    )
    others = cluster.coordinator.allocated(["n1", "n2"])
    openings = [opening_of(each, content) for each, content in zip(allocated, data, strict=True)]
    openings[1] = opening_of(
        forged, data[1], token=Signer(b"another secret").sign(ChunkWrite(4e9, forged.chunk, forged.version, []))
    )
    openings[2] = opening_of(damaged, data[2], sums=block_checksums(data[2] + b"x"))
    openings[4] = opening_of(others, data[4])
    answers = ask(cluster, cluster.connect("n0"), list(zip(openings, data, strict=True)))
    outcomes = [answers[tag][0] for tag in range(1, 7)]
    assert [isinstance(each, WriteAck) for each in outcomes] == [True, False, False, False, False, True]
    assert [each.code for each in outcomes[1:5]] == [
        "AccessDenied",
        "ChecksumMismatch",
        "StaleVersion",
        "AccessDenied",
    ]
    assert outcomes[2].culprit == "n0", "n0 received other data than the checksums say"
    for name in ALL:
        store = cluster.coordinator.nodes[name].store
        assert [store.find(each.chunk) is not None for each in (good, last)] == [True, True]
        assert [store.find(each.chunk) for each in (forged, damaged, foreign)] == [None] * 3
    assert cluster.coordinator.nodes["n1"].store.find(old.chunk).version == old.version + 1
    until(lambda: cluster.nodes[0].requests.streams == 0, "nothing is under way")


@pytest.mark.parametrize("victim", ["n1", "n2"])
@pytest.mark.evidence("acknowledged-is-durable")
def test_a_hop_that_dies_in_the_middle_of_a_batch_fails_what_it_has_not_acknowledged(make_cluster, until, victim):
    cluster = make_cluster()
    cluster.write(b"warm the connections")
    # An acknowledgement of n2 has about 100 bytes, so the victim dies after about seven. Data of more than 16 KiB
    # arrives in several batches.
    cluster.coordinator.nodes[victim].relay.cut_up_after = 700
    data = [os.urandom(4000) for _ in range(60)]
    allocated, answers = write(cluster, ALL, data)
    failed = [each for each in answers if isinstance(each, Failure)]
    assert failed and {each.culprit for each in failed} == {victim}
    for each, content, answer in zip(allocated, data, answers, strict=True):
        if isinstance(answer, WriteAck):
            for name in ALL:
                replica = cluster.coordinator.nodes[name].store.find(each.chunk)
                assert replica is not None and replica.length == len(content)
    until(lambda: cluster.nodes[0].requests.streams == 0, "nothing is under way")


@pytest.mark.parametrize("kind", [fx.AppendToFile, fx.Sync])
@pytest.mark.parametrize(("number", "code"), [(errno.EIO, "DiskFault"), (errno.ENOSPC, "DiskFull")])
@pytest.mark.evidence("eio", "disk-full", "fsync-fails")
def test_a_disk_that_fails_a_batch_fails_its_chunks_and_the_next_batch_succeeds(make_cluster, kind, number, code):
    cluster = make_cluster()
    cluster.write(b"a segment to append to")
    node = cluster.coordinator.nodes["n1"]
    perform = node.driver._perform[kind]

    def fail(effect):
        raise OSError(number, os.strerror(number))

    node.driver._perform[kind] = fail
    data = contents(5)
    allocated, answers = write(cluster, ALL, data)
    assert {(each.code, each.culprit) for each in answers} == {(code, "n1")}
    assert [node.store.find(each.chunk) for each in allocated] == [None] * 5
    node.driver._perform[kind] = perform
    # Send the same chunks again, as a writer may after a broken pipeline. Two hops hold them already.
    again = ask(
        cluster,
        cluster.connect("n0"),
        [(opening_of(each, content), content) for each, content in zip(allocated, data, strict=True)],
    )
    assert [type(again[tag][0]) for tag in range(1, 6)] == [WriteAck] * 5
    for each, content in zip(allocated, data, strict=True):
        assert node.store.find(each.chunk).length == len(content)


def test_chunks_with_other_next_hops_do_not_wait_for_each_other(make_cluster):
    cluster = make_cluster(hop_timeout_s=6.0)
    cluster.coordinator.nodes["n2"].relay.hold_down_after = 0
    stuck, goes = cluster.coordinator.allocated(["n0", "n2"]), cluster.coordinator.allocated(["n0", "n1"])
    connection = cluster.connect("n0")
    frames = [Frame(opening_of(each, b"x"), b"x", tag) for tag, each in ((1, stuck), (2, goes))]
    cluster.driver.run(fx.send_frames(connection, frames, timeout_s=10.0))
    first = cluster.driver.run(fx.receive(connection, timeout_s=3.0))
    assert (first.tag, type(first.message)) == (2, WriteAck)
    second = cluster.driver.run(fx.receive(connection, timeout_s=30.0))
    assert (second.tag, second.message.culprit) == (1, "n2")


PLACES = [["n0", "n1", "n2"], ["n2", "n0", "n1"], ["n0", "n1"], ["n1", "n2", "n0"], ["n0"]]


def test_chunks_with_the_same_next_hop_are_sent_together_whatever_their_place_in_the_pipeline(
    make_cluster, monkeypatch
):
    """n0 is the head of some chunks, the middle or the end of others. Three of five kinds go on to n1."""
    cluster = make_cluster()
    cluster.write(b"warm the connections")
    sent, send = [], SocketConnection.send_frames_now

    def recorded(self, frames):
        if isinstance(frames[0].message, WriteChunk):
            sent.append((threading.current_thread().name, len(frames)))
        return send(self, frames)

    monkeypatch.setattr(SocketConnection, "send_frames_now", recorded)
    allocated = [cluster.coordinator.allocated(nodes) for nodes in PLACES * 4]
    answers = ask(cluster, cluster.connect("n0"), [(opening_of(each, b"x"), b"x") for each in allocated])
    for tag, nodes in enumerate(PLACES * 4, 1):
        assert [receipt.node for receipt in answers[tag][0].receipts] == nodes[nodes.index("n0") :]
    assert [count for thread, count in sent if thread == "data-n0"] == [12]


@pytest.mark.evidence("everything-is-bounded")
def test_each_chunk_of_a_batch_has_the_deadline_of_its_place(make_cluster, until):
    """Of two chunks that are forwarded together, the one in the middle of its pipeline times out earlier."""
    cluster = make_cluster(hop_timeout_s=4.0)
    cluster.write(b"warm the connections")
    node = cluster.coordinator.nodes["n1"]
    goes_on, sync = threading.Event(), node.driver._perform[fx.Sync]

    def hang(effect):
        assert goes_on.wait(60.0)
        sync(effect)

    node.driver._perform[fx.Sync] = hang
    head, middle = cluster.coordinator.allocated(["n0", "n1"]), cluster.coordinator.allocated(["n2", "n0", "n1"])
    connection = cluster.connect("n0")
    frames = [Frame(opening_of(each, b"x"), b"x", tag) for tag, each in ((1, head), (2, middle))]
    began_s = time.monotonic()
    cluster.driver.run(fx.send_frames(connection, frames, timeout_s=10.0))
    first = cluster.driver.run(fx.receive(connection, timeout_s=30.0))
    # Each hop of three waits a second less than the one before it, each of two 1.33 s: 4 - 2 and 4 - 1.33.
    assert (first.tag, first.message.code, first.message.culprit) == (2, "PeerTimeout", "n1")
    assert 2.0 <= time.monotonic() - began_s < 2.6
    goes_on.set()
    second = cluster.driver.run(fx.receive(connection, timeout_s=30.0))
    assert (second.tag, type(second.message)) == (1, WriteAck)
    assert [receipt.node for receipt in second.message.receipts] == ["n0", "n1"]
    # The late acknowledgement of the chunk that was given up does not disturb the next batch.
    _allocated, answers = write(cluster, ["n0", "n1"], contents(5))
    assert [type(each) for each in answers] == [WriteAck] * 5
    until(lambda: cluster.nodes[0].requests.streams == 0, "nothing is under way")


@pytest.mark.evidence("everything-is-bounded", "disk-hangs")
def test_a_peer_that_does_not_wait_for_answers_is_not_read_beyond_a_bound(make_cluster, until):
    cluster = make_cluster()
    cluster.write(b"a segment to append to")
    node = cluster.coordinator.nodes["n0"]
    goes_on, sync, streams = threading.Event(), node.driver._perform[fx.Sync], []

    def hang(effect):
        streams.append(node.requests.streams)
        goes_on.wait(60.0)
        sync(effect)

    node.driver._perform[fx.Sync] = hang
    allocated = [cluster.coordinator.allocated(["n0"]) for _ in range(600)]
    connection = cluster.connect("n0")
    frames = [Frame(opening_of(each, b"x"), b"x", tag) for tag, each in enumerate(allocated, 1)]
    sender = threading.Thread(
        target=lambda: cluster.driver.run(fx.send_frames(connection, frames, timeout_s=60.0))
    )
    sender.start()
    until(lambda: node.requests.streams >= 256, "as many as may be are under way")
    assert node.requests.streams == 256
    goes_on.set()
    tags = set()
    while len(tags) < len(frames):
        tags |= {frame.tag for frame in cluster.driver.run(fx.receive_frames(connection, timeout_s=30.0))}
    sender.join()
    until(lambda: node.requests.streams == 0, "all are answered")
    assert max(streams) <= 256


def test_requests_without_tags_are_answered_in_their_order(cluster):
    allocated = [cluster.coordinator.allocated(ALL) for _ in range(8)]
    connection = cluster.connect("n0")
    frames = [Frame(opening_of(each, b"x"), b"x") for each in allocated]
    cluster.driver.run(fx.send_frames(connection, frames, timeout_s=10.0))
    acks = [cluster.driver.run(fx.receive(connection, timeout_s=30.0)) for _ in allocated]
    assert [(ack.tag, ack.message.chunk) for ack in acks] == [(0, each.chunk) for each in allocated]


@pytest.mark.evidence("checksums-hold")
def test_a_replica_that_cannot_be_read_fails_alone(make_cluster):
    cluster = make_cluster()
    data = [os.urandom(500) for _ in range(5)]
    allocated, _answers = write(cluster, ["n0"], data)
    node = cluster.coordinator.nodes["n0"]
    node.damage(data[1][100:400])
    token = Signer(b"another secret").sign(ChunkRead(4e9, allocated[2].chunk))
    requests = [(reading(cluster, each.chunk, 500), b"") for each in allocated]
    requests[2] = reading(cluster, allocated[2].chunk, 500, token), b""
    requests[3] = reading(cluster, 999_999, 500), b""
    for _turn in range(2):  # first from the disk, then perhaps from memory
        answers = ask(cluster, cluster.connect("n0"), requests)
        assert [answers[tag][1] for tag in (1, 5)] == [data[0], data[4]]
        assert [answers[tag][0].code for tag in (2, 3, 4)] == ["ChecksumMismatch", "AccessDenied", "ChunkNotFound"]
    assert [replica.chunk for replica in node.changes.take()[2]] == [allocated[1].chunk] * 2


@pytest.mark.parametrize("most", [1, 7, 100, 1 << 20])
def test_an_append_of_many_pieces_is_whole_however_little_a_call_writes(tmp_path, monkeypatch, most):
    pieces = [os.urandom(Random(number).randint(0, 9)) for number in range(3000)]
    pwritev = os.pwritev

    def short(descriptor, buffers, offset):
        assert len(buffers) <= 1024, "the kernel takes no more"
        left, taken = most, []
        for buffer in buffers:
            taken.append(bytes(buffer[:left]))
            left -= len(taken[-1])
            if not left:
                break
        return pwritev(descriptor, taken, offset)

    monkeypatch.setattr(os, "pwritev", short)
    path = tmp_path / "file"
    file = DiskFile(os.open(path, os.O_RDWR | os.O_CREAT))
    file.append(pieces[:1500])
    file.append(pieces[1500:])
    assert path.read_bytes() == b"".join(pieces)
    assert file.end == len(b"".join(pieces))
    os.close(file.descriptor)


_EXTREMES = [0, 1, -1, 499, 500, 501, 1 << 16, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.evidence("everything-is-bounded")
def test_requests_with_senseless_numbers_are_answered_and_do_no_harm_to_the_others(make_cluster, seed, until):
    """The holder of a valid token chooses every other field. All requests share one batch with good ones."""
    random, cluster = Random(seed), make_cluster()
    data = [os.urandom(500) for _ in range(4)]
    allocated, _answers = write(cluster, ["n0"], data)
    requests, expected = [], []
    for number in range(120):
        each, content = random.choice(list(zip(allocated, data, strict=True)))
        good = reading(cluster, each.chunk, 500)
        if number % 3 == 0:
            requests.append((good, b""))
            expected.append(content)
        elif number % 3 == 1:
            version, offset, length = (random.choice(_EXTREMES) for _ in range(3))
            requests.append((ReadChunk(good.token, each.chunk, version, offset, length), b""))
            is_in_range = version <= 1 and 0 <= offset < 500 and length > 0
            expected.append(content if is_in_range else Failure)
        else:
            sums = random.choice([b"", b"x", bytes(4), random.randbytes(400), block_checksums(content) * 2])
            requests.append((WriteChunk(each.token, each.chunk, each.version, sums, True), content))
            expected.append(Failure)
    answers = ask(cluster, cluster.connect("n0"), requests)
    for tag, wanted in enumerate(expected, 1):
        message, payload = answers[tag]
        assert (type(message) if wanted is Failure else payload) == wanted, (requests[tag - 1][0], message)
    until(lambda: cluster.nodes[0].requests.streams == 0, "nothing is under way")
