from peacefs.datanode.hdfs.packet_acks import PacketAcks, unacknowledged_bytes

packet = 64_512
acks = PacketAcks(block_bytes=1 << 27)
for number in range(40):
    acks.came(number, (number + 1) * packet, packet)
forwarded = 10 * packet
assert acks.due(forwarded) == list(range(10)), "no further than later hops have the block"
newest = 40 * packet
assert acks.due(newest)[-1] == (newest - unacknowledged_bytes) // packet - 1, "the last packets wait"
acks.came(40, newest + 100, 100)
assert acks.is_awaited, "a packet that is not full was cut off by a flush or by the end"
assert acks.due(newest) == []
assert acks.published()[-1] == 40
