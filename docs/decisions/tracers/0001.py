from peacefs.runtime import effects as fx


def publish(path: str, data: bytes) -> fx.Steps[str]:
    file = yield from fx.open_file(path + ".staged", create=True)
    yield from fx.append(file, data)
    yield from fx.sync(file)
    yield from fx.close_file(file)
    yield from fx.rename(path + ".staged", path)
    return "published"


# One driver performs the effects for real ...
import pathlib, tempfile
from peacefs.protocol.handshake import Identity
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver

pool = ConnectionPool(Identity("", "client", "tracer", None))
driver = ThreadDriver(pool, lambda message, timeout_s: message)
with tempfile.TemporaryDirectory() as directory:
    assert driver.run(publish(f"{directory}/a", b"state")) == "published"
    assert pathlib.Path(directory, "a").read_bytes() == b"state"

# ... another only looks at them, and could crash before any.
steps, seen = publish("a", b"state"), []
try:
    effect = next(steps)
    while True:
        seen.append(type(effect).__name__)
        effect = steps.send(None)
except StopIteration as stop:
    assert stop.value == "published"
assert seen == ["OpenLocalFile", "AppendToFile", "Sync", "CloseFile", "RenameFile"]
