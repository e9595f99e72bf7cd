import tempfile
from pathlib import Path

from peacefs.protocol.handshake import Identity
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.page_cache_driver import PageCacheDriver, WouldWait
from peacefs.runtime.thread_driver import ThreadDriver


def outcome(steps):
    try:
        return driver.run(steps)
    except WouldWait:
        return "would wait"


pool = ConnectionPool(Identity("", "client", "tracer", None))
others = ThreadDriver(pool, lambda message, timeout_s: message, files_kept_max=1)
driver = PageCacheDriver(others.kept_files)
with tempfile.TemporaryDirectory() as directory:
    path = str(Path(directory) / "segment")
    Path(path).write_bytes(b"abcde")
    assert outcome(fx.read_part(path, 1, 3)) == "would wait", "to open it"
    assert others.run(fx.read_part(path, 1, 3)) == b"bcd", "which others do, and the file is kept"
    assert outcome(fx.read_part(path, 1, 3)) in (b"bcd", "would wait"), (
        "the latter on a file system that cannot say"
    )
    assert outcome(fx.read_part(path, 1, 5)) == "would wait", "not all of it is there"
    assert outcome(fx.sleep(1)) == "would wait"
    others.close()
    assert outcome(fx.read_part(path, 1, 3)) == "would wait"
