from peacefs.coordinator.rpc.dispatch import CALLS_OF_CLIENTS, CALLS_OF_DATANODES
from peacefs.coordinator.calls.name_table import NAME_TABLE
from peacefs.protocol.frames import FrameReader, encode
from peacefs.protocol.messages import GetFileInfo, Mkdirs, NameCall, NameChange


def kinds(base):
    below = base.__subclasses__()
    return {kind for kind in below if kind is not NameChange} | {found for kind in below for found in kinds(kind)}


assert kinds(NameCall) == set(NAME_TABLE), "each call has an operation that carries it out"
assert CALLS_OF_CLIENTS >= set(NAME_TABLE) and CALLS_OF_DATANODES.isdisjoint(NAME_TABLE)

asked = Mkdirs("/a", "alice", permission=0o755, request_id="r")
(frame,) = FrameReader().feed(encode(asked))
assert frame.message == asked, "repeated, it is the same request"
assert len(encode(GetFileInfo("/a", "alice"))) < 64
