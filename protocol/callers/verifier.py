"""Verifies credentials with public keys, as coordinators and datanodes do: nothing is asked of anybody.

A token that was verified is remembered by its hash until it ends, so that each costs one signature and not one a
request. What is revoked, or signed with a key that was given up, is refused from the moment that `trust` is told.
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

# Verified tokens that are remembered by their hash.
verified_tokens_max: Final = 10_000


_ADVICE = "make another with `peacefs token create`, and put it where PEACEFS_TOKEN_FILE says"


def client_revocation(client: str) -> str:
    """Return the id by which all tokens are revoked that an OAuth2 client was granted."""
    return f"client/{client}"


def delegation_id(sequence: int) -> str:
    """Return the id by which a delegation token is revoked."""
    return f"delegation/{sequence}"


def sequence_of(token_id: str) -> int:
    """Return the number of the delegation token that is revoked by this id."""
    return int(token_id.removeprefix("delegation/"))


class Verified(NamedTuple):
    """A credential that holds, and until when by itself."""

    caller: Caller
    key: int
    #: All ids by which it can be revoked.
    revoked_by: tuple[str, ...]
    expires_s: float


class Verifier:
    """Knows the keys of one cluster. Any thread may `trust`; one verifies."""

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
        """Return whether callers have to authenticate. Raises ServiceUnready while that is not known."""
        if self._is_required is None:
            raise ServiceUnready("this datanode has not heard from the coordinator yet; try again")
        return self._is_required

    @property
    def remembered(self) -> int:
        """Return how many tokens need not be verified again."""
        return len(self._verified)

    def trust(self, trust: Trust) -> None:
        """Replaces all that is trusted."""
        keys = {key.number: self._keys.get(key.number) or VerificationKey(key.public) for key in trust.keys}
        self._ends_s = {key.number: key.ends_s for key in trust.keys}
        self._keys = keys
        self._by_id = {key_id(number): key for number, key in keys.items()}
        self._revoked = frozenset(trust.revoked)
        self._is_required = trust.is_required

    def bearer(self, token: str, now_s: float) -> Verified:
        """Return who bears a token. Raises Unauthenticated."""
        return self._verified_by(token, now_s, self._read_bearer)

    def delegation(self, token: str, now_s: float) -> Verified:
        """Return who gave a delegation token away. Raises Unauthenticated."""
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
