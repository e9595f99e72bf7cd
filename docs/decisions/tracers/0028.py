from peacefs.protocol.errors import BrokenSeal, PeerRefused
from peacefs.protocol.handshake import Identity, accepting, connecting
from peacefs.protocol.messages import Target
from peacefs.protocol.seals import Opener, Sealer
from peacefs.protocol.tokens import Signer

signer = Signer(b"the secret of the cluster")
gateway = Identity("c", "datanode", "dn-1", signer)
coordinator = Identity("c", "coordinator", "coordinator", signer)


def end(talk, message):
    try:
        talk.send(message)
    except StopIteration as stop:
        return stop.value


def meet(target):
    asks = connecting(gateway, b"1" * 16, target=target)
    answers = accepting(coordinator, b"2" * 16, next(asks), reached="10.0.0.9:9820")
    met = end(asks, next(answers))
    return met, end(answers, met.last_word)


here, there = meet(Target("coordinator", "coordinator", "names:9820", "10.0.0.9:9820"))
opener = Opener(there.frame_keys.receiving)
record = b"".join(Sealer(here.frame_keys.sending).seal(b"a frame"))
assert opener.open(record) == b"a frame"
try:
    opener.open(record)
    raise AssertionError("taken twice")
except BrokenSeal:
    pass

# The gateway was made to dial a stranger, who passes its greeting on.
try:
    meet(Target("datanode", "dn-2", "stranger:9866", "192.0.2.1:9866"))
    raise AssertionError("let in")
except PeerRefused as refusal:
    assert "dn-2" in refusal.message
