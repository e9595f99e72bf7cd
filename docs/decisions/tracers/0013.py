from peacefs.client.transfer.file_flusher import FlushedTail
from peacefs.protocol.messages import WrittenChunk

tail, chunks, written = FlushedTail(4 << 20), [], 0
for number in range(1000):
    replaced, data = tail.take_in(b"a line of a log\n")
    del chunks[len(chunks) - len(replaced) :]
    chunks.append(data)
    written += len(data)
    tail.flushed([WrittenChunk(number, 1, len(data), 0, [])], data)
assert b"".join(chunks) == b"a line of a log\n" * 1000
assert len(chunks) <= 10
assert written < 8 * 16_000
