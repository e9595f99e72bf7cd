import os
import tempfile

from peacefs.datanode.store.chunk_store import ChunkStore, Sealed
from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.errors import StaleVersion
from peacefs.protocol.handshake import Identity
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver

driver = ThreadDriver(ConnectionPool(Identity("", "client", "tracer", None)), lambda message, timeout_s: message)
performed, synced = driver.performer(fx.Sync), []


def sync(effect):
    synced.append(effect)
    performed(effect)


driver._perform[fx.Sync] = sync
with tempfile.TemporaryDirectory() as directory:
    store = ChunkStore(directory, 0)
    driver.run(store.recover())
    data = os.urandom(1024)
    taken = [store.take(chunk, 1, block_checksums(data), data) for chunk in range(1, 21)]
    store.take(7, 2, block_checksums(data), data)  # a newer version of one of them is begun
    outcomes = driver.run(store.seal_many(taken))
    assert [type(outcome) for outcome in outcomes] == [Sealed] * 6 + [StaleVersion] + [Sealed] * 13
    assert len(synced) == 1
    driver.run(store.close())
driver.close()
