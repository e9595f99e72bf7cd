import socket
import threading

from peacefs.dataflow.hosts.door import Door
from peacefs.dataflow.hosts.membership import Member, Membership
from peacefs.protocol.errors import PeerRefused, PeerUnreachable

entered: list[str] = []
received = bytearray()
done = threading.Event()


def take(peer, stream) -> None:
    entered.append(peer.name)
    with stream.sock:
        while data := stream.sock.recv(4096):
            received.extend(stream.open(data))
    done.set()


door = Door(Membership(Member("edge", "token")), take)
stream = Membership(Member("node-1", "token")).dial("edge", door.address, lambda: False)
with stream.sock:
    stream.sock.sendall(b"".join(stream.seal(b"a message", b"")))
assert done.wait(60) and entered == ["node-1"] and received == b"a message"

# Another token, or another process than the one meant.
for member, peer in ((Member("node-1", "another token"), "edge"), (Member("node-1", "token"), "node-2")):
    try:
        Membership(member).dial(peer, door.address, lambda: False)
        raise AssertionError("let in")
    except (PeerRefused, PeerUnreachable):
        pass

# A stranger is told nothing.
host, port = door.address.split(":")
with socket.create_connection((host, int(port)), timeout=60) as stranger:
    stranger.sendall(b"GET / HTTP/1.1\r\n\r\nGET /")
    try:
        assert stranger.recv(1) == b""
    except ConnectionResetError:
        pass
door.close()
assert entered == ["node-1"]
