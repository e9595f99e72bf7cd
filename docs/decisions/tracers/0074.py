from peacefs.client.transfer.chunk_batches import send_chunks
from peacefs.protocol.checksums import block_checksums, chunk_checksum
from peacefs.protocol.frames import Frame
from peacefs.protocol.messages import Allocated, Failure, Hop, Receipt, WriteAck
from peacefs.runtime import effects as fx

heads = [Hop("n0", "127.0.0.1", 1), Hop("n1", "127.0.0.1", 2)]
chunks = [(Allocated(number, 1, [heads[number % 2]], "token"), b"%d" % number) for number in range(10)]
sent, unanswered = [], []


def performed(effect):
    match effect:
        case fx.Connect():
            return effect.name
        case fx.SendFrames():
            sent.append((effect.connection, len(effect.frames)))
            unanswered.append([answer(effect.connection, frame) for frame in effect.frames])
        case fx.ReceiveFrames():
            return unanswered.pop(0)
        case fx.Now():
            return 0.0


def answer(node, frame):
    opening = frame.message
    if opening.chunk == 3:
        return Frame(Failure("DiskFull", "the disk is full", node), b"", frame.tag)
    length, checksum = len(frame.payload), chunk_checksum(block_checksums(frame.payload))
    return Frame(WriteAck(opening.chunk, 1, length, checksum, [Receipt(node, b"")]), b"", frame.tag)


steps = send_chunks(chunks)
effect = next(steps)
try:
    while True:
        effect = steps.send(performed(effect))
except StopIteration as end:
    written = end.value
assert sent == [("n0", 5), ("n1", 5)]
assert [type(each).__name__ for each in written] == ["WrittenChunk"] * 3 + ["DiskFull"] + ["WrittenChunk"] * 6
