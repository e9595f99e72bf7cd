import os
import tempfile
from pathlib import Path

from peacefs.protocol.handshake import Identity
from peacefs.runtime.disk_files import direct_write_bytes
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver

pool = ConnectionPool(Identity("", "client", "tracer", None))
driver = ThreadDriver(pool, lambda message, timeout_s: message, write_around_cache=True)
data = os.urandom(direct_write_bytes + 5000)


def written(path):
    file = yield from fx.open_file(path, create=True, written_once=True)
    yield from fx.append(file, data[:3000], data[3000:])
    yield from fx.sync(file)
    yield from fx.close_file(file)


with tempfile.TemporaryDirectory() as directory:
    path = Path(directory, "chunk")
    driver.run(written(str(path)))
    assert path.read_bytes() == data
