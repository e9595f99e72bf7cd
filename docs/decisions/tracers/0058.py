from peacefs.protocol.handshake import Identity, SpokenVersions, accepting, connecting
from peacefs.protocol.messages import Target
from peacefs.protocol.tokens import Signer

signer = Signer(b"the secret of the cluster")
target = Target("datanode", "dn-1", "node:9866", "10.0.0.1:9866")


def spoken(connector, acceptor):
    """Return the version that two services speak, each with its range."""
    gateway = Identity("ours", "datanode", "dn-2", signer, versions=SpokenVersions(*connector))
    node = Identity(
        "ours", "datanode", "dn-1", signer, addresses=("node:9866",), versions=SpokenVersions(*acceptor)
    )
    asks = connecting(gateway, b"c" * 16, target=target)
    answers = accepting(node, b"a" * 16, next(asks), reached="10.0.0.1:9866")
    try:
        asks.send(next(answers))
    except StopIteration as stop:
        return stop.value.version
    raise AssertionError("the connector asks once")


assert spoken((5, 6), (5, 6)) == 6
assert spoken((5, 6), (5, 5)) == spoken((5, 5), (5, 6)) == 5
try:
    spoken((7, 8), (5, 6))
except Exception as refusal:
    assert "upgrade peacefs where dn-1 runs" in str(refusal)
else:
    raise AssertionError("two releases apart, and not refused")
