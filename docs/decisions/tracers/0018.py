import socket, threading
from peacefs.runtime import effects as fx
from peacefs.protocol.handshake import Identity
from peacefs.protocol.messages import Packet
from peacefs.runtime.reactor import Reactor
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.thread_driver import ThreadDriver


def echo(connection):
    frame = yield from fx.next_request(connection, timeout_s=5)
    yield from fx.send(connection, frame.message, bytes(frame.payload), timeout_s=5)


driver = ThreadDriver(ConnectionPool(Identity("", "client", "tracer", None)), lambda message, timeout_s: message)
reactor = Reactor(driver, "tracer", workers_max=2)
reactor.start()
with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
    far = [socket.create_connection(listener.getsockname()) for _ in range(50)]
    pairs = [(SocketConnection(listener.accept()[0], "near"), SocketConnection(end, "far")) for end in far]
ended = threading.Semaphore(0)
for near, _far in pairs:
    reactor.run(echo(near), lambda fault: ended.release())
threads = threading.active_count()
for number, (_near, far) in enumerate(pairs):
    far.send(Packet(number, b""), b"small", 5)
assert [far.receive(5).message.offset for _near, far in pairs] == list(range(50))
assert threading.active_count() == threads
for near, far in pairs:
    assert ended.acquire(timeout=5)
    near.close()
    far.close()
reactor.stop()
