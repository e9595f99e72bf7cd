from peacefs.protocol.frames import Frame, FrameReader, encode
from peacefs.protocol.messages import Packet
from peacefs.protocol.errors import ProtocolViolation

payload = b"x" * 1000
wire = encode(Packet(offset=0, sums=b"\0\0\0\0", last=True), len(payload), tag=7) + payload
reader = FrameReader()
assert reader.feed(wire[:11]) == []
(frame,) = reader.feed(wire[11:])
assert frame == Frame(Packet(0, b"\0\0\0\0", True), payload, 7)

try:
    FrameReader().feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    raise AssertionError("a browser was taken for a datanode")
except ProtocolViolation as refusal:
    assert "does not speak the peacefs protocol" in str(refusal)
