from peacefs.protocol.callers.bearer import SigningKey
from peacefs.protocol.callers.verifier import Verifier
from peacefs.protocol.errors import Unauthenticated
from peacefs.protocol.messages import Trust, TrustedKey

old, new = SigningKey.generate(), SigningKey.generate()
said = dict(cluster="c", user="alice", token_id="t1", issued_s=0, expires_s=100)
datanode = Verifier("c")


def trust(*keys, revoked=()):
    trusted = [TrustedKey(key.number, key.verification.public) for key in keys]
    datanode.trust(Trust(is_required=True, keys=trusted, revoked=list(revoked)))


def refused(token, now_s):
    try:
        datanode.bearer(token, now_s)
    except Unauthenticated as why:
        return why.message
    raise AssertionError("let in")


trust(old, new)  # while keys change, both verify
assert datanode.bearer(old.token(**said), 99).caller.user == "alice"
assert datanode.bearer(new.token(**said), 99).caller.user == "alice"
assert "expired" in refused(new.token(**said), 100)
trust(new, revoked=["t1"])
assert "revoked" in refused(new.token(**said), 99)
assert "given up" in refused(old.token(**said), 99)
assert "given up" in refused(SigningKey.generate().token(**said), 99)
