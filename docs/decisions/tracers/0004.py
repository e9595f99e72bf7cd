from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.tokens import ChunkRead, ChunkWrite, Signer

coordinator, stranger = Signer(b"the secret of the cluster"), Signer(b"another")
token = coordinator.sign(ChunkRead(expires_s=100.0, chunk=42))
assert coordinator.verify(token, ChunkRead, now_s=99.0).chunk == 42


def refused(signer, text, kind, now_s):
    try:
        signer.verify(text, kind, now_s)
    except AccessDenied as why:
        return str(why)
    raise AssertionError("let in")


assert "expired" in refused(coordinator, token, ChunkRead, 101.0)
assert "ChunkWrite token is wanted" in refused(coordinator, token, ChunkWrite, 99.0)
assert "secret" in refused(stranger, token, ChunkRead, 99.0)

receipt = coordinator.receipt("dn-1", chunk=42, version=7, length=10, checksum=5)
coordinator.verify_receipt(receipt, 42, 7, 10, 5)
