"""When packets are acknowledged: rules that a client of HDFS relies on, checked against a count in the test."""

from __future__ import annotations

import random

from peacefs.datanode.hdfs.packet_acks import PacketAcks

PACKET = 64512
_BLOCK = 1 << 27


def test_the_last_packet_is_acknowledged_only_after_it_is_published() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _stream in range(200):
        acks, end, sent, acknowledged = PacketAcks(_BLOCK), 0, 0, []
        for _event in range(chance.randrange(200)):
            match chance.choice(["packet", "packet", "packet", "cut off", "pause", "publish"]):
                case "packet" | "cut off" as kind:
                    length = PACKET if kind == "packet" else chance.randint(1, 2000)
                    end += length
                    acks.came(sent, end, length)
                    sent += 1
                    acknowledged += acks.due(chance.randint(0, end))
                    assert acknowledged[-1:] != [sent - 1]
                case "pause" if acks:
                    acks.paused()
                    acknowledged += acks.published()
                case "publish":
                    acknowledged += acks.published()
                    assert len(acknowledged) == sent
        assert acknowledged == list(range(len(acknowledged))), "in order, none twice"


def test_a_stream_goes_on_within_the_window_of_hadoops_client() -> None:
    acks, open_packets = PacketAcks(_BLOCK), 0
    for seqno in range(2000):
        acks.came(seqno, (seqno + 1) * PACKET, PACKET)
        # Later hops are a MiB behind.
        open_packets += 1 - len(acks.due((seqno + 1) * PACKET - 1024 * 1024))
        assert open_packets < 80


def test_a_client_with_two_open_packets_goes_on_after_one_pause() -> None:
    acks = PacketAcks(_BLOCK)
    acks.came(0, PACKET, PACKET)
    acks.came(1, 2 * PACKET, PACKET)
    assert acks.due(0) == []
    acks.paused()
    assert acks.published() == [0, 1]
    for seqno in range(2, 100):
        acks.came(seqno, (seqno + 1) * PACKET, PACKET)
        assert acks.due(0) == ([seqno - 1] if seqno > 2 else [])


def test_short_packets_at_the_end_of_a_block_await_no_flush() -> None:
    """Hadoop's client ends a block of 256 KiB with four full packets, seven checksummed units, and one."""
    acks, end = PacketAcks(1 << 18), 0
    for seqno, length in enumerate([PACKET] * 4 + [7 * 512]):
        end += length
        acks.came(seqno, end, length)
        assert not acks.is_awaited
    acks.came(5, end + 100, 100)
    assert acks.is_awaited, "a client that flushes before the end of the block"
