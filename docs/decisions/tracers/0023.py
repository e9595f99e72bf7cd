import os
import tempfile

from peacefs.runtime.local_sockets import dial, file_for_reading, listen_locally, named
from peacefs.runtime.local_sockets import receive_with_file, send_with_file

listener, name = listen_locally(1)
reader = dial(named(name), 1.0)
owner, _ = listener.accept()
with tempfile.TemporaryFile() as chunk:
    chunk.write(b"what is in a chunk")
    chunk.flush()
    with file_for_reading(chunk.fileno()) as descriptor:
        send_with_file(owner, memoryview(b"here it is"), descriptor)
room = memoryview(bytearray(16))
count, shared = receive_with_file(reader, room)
assert bytes(room[:count]) == b"here it is"
# Its owner has closed it, and its name is gone.
assert os.pread(shared, 100, 0) == b"what is in a chunk"
try:
    os.pwrite(shared, b"x", 0)
except OSError:
    pass
else:
    raise AssertionError("who is given a file can write to it")
for end in (reader, owner, listener):
    end.close()
os.close(shared)
