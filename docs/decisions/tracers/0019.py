import socket

from peacefs.runtime.connections import SocketConnection
from peacefs.runtime.in_process_payloads import ServedHere
from peacefs.protocol.messages import Packet

here = ServedHere()
with socket.create_server(("127.0.0.1", 0)) as listener:
    gateway = SocketConnection(socket.create_connection(listener.getsockname()), "the data server")
    server = SocketConnection(listener.accept()[0], "the gateway")
here.add(server)
here.join(gateway)
server.greeted()
chunk = bytes(1 << 20)
gateway.send(Packet(0, b"checksums"), memoryview(chunk)[: 1 << 18], 5.0)
assert server.receive(5.0).payload.obj is chunk, "not a copy"
gateway.close()
server.close()
