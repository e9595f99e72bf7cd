from peacefs.protocol.errors import PeacefsError
from peacefs.service.browser_guard import OwnNames, check
from peacefs.service.client_shares import Shares, client_of


def refused(method, *headers):
    scope = {"method": method, "headers": [(b"host", b"files:9870"), *headers]}
    try:
        check(scope, OwnNames("0.0.0.0", "files"))
    except PeacefsError:
        return True
    return False


assert not refused("PUT", (b"user-agent", b"Java/17.0.15"))
assert refused("POST", (b"user-agent", b"Mozilla/5.0"), (b"origin", b"http://evil.example"))
assert refused("GET", (b"origin", b"http://evil.example"))
assert refused("GET", (b"host", b"evil.example"))

shares = Shares(all_max=3, each_max=2)
assert [shares.take(client_of("10.0.0.1")) for _ in range(3)] == [True, True, False]
assert shares.take(client_of("10.0.0.2"))
