"""Verify bearer and delegation tokens with public keys, without asking another service.

Verified tokens are cached by hash, so the signature is checked once per token and not once per request. `trust`
updates keys and revocations; tokens that are revoked, or signed with a retired key, are refused from then on.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from peacefs.protocol.errors import ServiceUnready, Unauthenticated
from peacefs.protocol.messages import Trust

from .bearer import VerificationKey, key_id, read_token
from .caller import Caller, Via
from .delegation import DelegationToken, Identifier

# Maximum number of cached tokens.
verified_tokens_max: Final = 10_000


_ADVICE = "make another with `peacefs token create`, and put it where PEACEFS_TOKEN_FILE says"


def client_revocation(client: str) -> str:
    """Return the id that revokes all tokens granted to an OAuth2 client."""
    return f"client/{client}"


def delegation_id(sequence: int) -> str:
    """Return the id that revokes a delegation token."""
    return f"delegation/{sequence}"


def sequence_of(token_id: str) -> int:
    """Return the number of the delegation token with this id; the inverse of `delegation_id`."""
    return int(token_id.removeprefix("delegation/"))


class Verified(NamedTuple):
    """A verified credential, its expiry time and the ids that revoke it."""

    caller: Caller
    key: int
    #: All ids that revoke it.
    revoked_by: tuple[str, ...]
    expires_s: float


class Verifier:
    """Verifies tokens of one cluster, for coordinators and gateways.

    A token is accepted only if its key is trusted, it is not revoked and it has not expired; this is checked on
    every call, also for cached tokens. Any thread may call `trust`; only one thread verifies.
    """

    def __init__(self, cluster: str, *, remembered_max: int = verified_tokens_max) -> None:
        self._cluster = cluster
        self._remembered_max = remembered_max
        self._is_required: bool | None = None
        self._keys: dict[int, VerificationKey] = {}
        self._ends_s: dict[int, float] = {}
        self._by_id: dict[str, VerificationKey] = {}
        self._revoked: frozenset[str] = frozenset()
        self._verified: dict[bytes, Verified] = {}

    @property
    def is_required(self) -> bool:
        """Return whether callers must authenticate. Raises ServiceUnready before the first `trust`."""
        if self._is_required is None:
            raise ServiceUnready("this datanode has not heard from the coordinator yet; try again")
        return self._is_required

    @property
    def remembered(self) -> int:
        return len(self._verified)

    def trust(self, trust: Trust) -> None:
        """Replace the trusted keys and the revoked ids."""
        keys = {key.number: self._keys.get(key.number) or VerificationKey(key.public) for key in trust.keys}
        self._ends_s = {key.number: key.ends_s for key in trust.keys}
        self._keys = keys
        self._by_id = {key_id(number): key for number, key in keys.items()}
        self._revoked = frozenset(trust.revoked)
        self._is_required = trust.is_required

    def bearer(self, token: str, now_s: float) -> Verified:
        """Verify a bearer token. Raises Unauthenticated."""
        return self._verified_by(token, now_s, self._read_bearer)

    def delegation(self, token: str, now_s: float) -> Verified:
        """Verify a delegation token; the caller is its owner. Raises Unauthenticated."""
        return self._verified_by(token, now_s, self._read_delegation)

    def _verified_by(self, token: str, now_s: float, read: Callable[[str], Verified]) -> Verified:
        name = hashlib.sha256(token.encode(errors="surrogatepass")).digest()
        found = self._verified.get(name)
        if found is None:
            found = read(token)
        if found.key not in self._keys or 0 < self._ends_s.get(found.key, 0.0) <= now_s:
            self._verified.pop(name, None)
            raise Unauthenticated(f"the token's key was given up: {_ADVICE}")
        if not self._revoked.isdisjoint(found.revoked_by):
            self._verified.pop(name, None)
            raise Unauthenticated(f"the token was revoked: {_ADVICE}")
        if found.expires_s <= now_s:
            self._verified.pop(name, None)
            ended = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found.expires_s))
            raise Unauthenticated(f"the token of {found.caller.user} expired at {ended}: {_ADVICE}")
        self._remember(name, found)
        return found

    def _remember(self, name: bytes, found: Verified) -> None:
        if name not in self._verified:
            while len(self._verified) >= self._remembered_max:
                del self._verified[next(iter(self._verified))]
            self._verified[name] = found

    def _read_bearer(self, token: str) -> Verified:
        claims, key = read_token(token, self._by_id.get, self._cluster)
        revoked_by = (claims.jti, client_revocation(claims.client_id)) if claims.client_id else (claims.jti,)
        caller = Caller(claims.sub, Via.BEARER, claims.adm, claims.jti)
        return Verified(caller, key.number, revoked_by, float(claims.exp))

    def _read_delegation(self, token: str) -> Verified:
        parsed = DelegationToken.parse(token)
        said = Identifier.decode(parsed.identifier)
        key = self._keys.get(said.key)
        if key is None or not parsed.is_signed_with(key, self._cluster):
            raise Unauthenticated("the delegation token is none of this cluster's, or its key was given up")
        token_id = delegation_id(said.sequence)
        caller = Caller(said.owner, Via.DELEGATION, False, token_id)
        return Verified(caller, said.key, (token_id,), said.max_ms / 1000)
