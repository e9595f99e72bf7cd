"""OAuth2 for programs (RFC 6749): clients fetch their tokens with an id and a secret, as Hadoop's client does.

Grants: `client_credentials` (4.4) and `refresh_token` (6). The refresh token is a bearer token that an
administrator created, and is itself granted. So Hadoop's client can use such a token by configuration alone.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from peacefs.coordinator.limits import granted_token_max_s
from peacefs.coordinator.metadata.token_records import OAuthClient
from peacefs.protocol.callers.verifier import client_revocation
from peacefs.protocol.errors import BadRequest, FileNotFound, Overloaded, Unauthenticated
from peacefs.protocol.values.account_names import check_account_name

from .tokens import Tokens

granted_token_min_s: Final = 31.0
oauth_clients_max: Final = 1000
# The number of wrong secrets from one address after which it must wait, and how long they count.
wrong_secrets_max: Final = 10
wrong_secrets_memory_s: Final = 60.0
# Maximum numbers: of addresses whose wrong secrets are remembered, of secrets checked at the same time (each takes
# 16 MiB and 50 ms of a core), and of waiting checks.
guessing_addresses_max: Final = 10_000
secret_checks_max: Final = 2
secret_checks_waiting_max: Final = 64


_SALT_BYTES = 16
_SCRYPT_COST, _SCRYPT_BLOCK, _SCRYPT_PARALLEL = 2**14, 8, 1


class OAuthFault(Exception):
    """A refusal with an error code of RFC 6749, 5.2."""

    def __init__(self, error: str, description: str, status: int = 400) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status


class NewClient(NamedTuple):
    """A new client and its secret, which is not stored and cannot be shown again."""

    client: OAuthClient
    secret: str


class GrantedToken(NamedTuple):
    """An access token and its lifetime in seconds."""

    token: str
    expires_in: int


class Guesses:
    """Counts wrong secrets by client address. Pure: time is passed in."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, list[float]] = OrderedDict()

    def wrong(self, address: str, now_s: float) -> None:
        recent = [at_s for at_s in self._wrong.pop(address, []) if now_s - at_s < wrong_secrets_memory_s]
        self._wrong[address] = [*recent, now_s][-wrong_secrets_max:]
        if len(self._wrong) > guessing_addresses_max:
            self._wrong.popitem(last=False)

    def are_too_many(self, address: str, now_s: float) -> bool:
        recent = [at_s for at_s in self._wrong.get(address, ()) if now_s - at_s < wrong_secrets_memory_s]
        return len(recent) >= wrong_secrets_max


class OAuthClients:
    """Creates and deletes clients, and grants tokens. Called by the REST routes, from one event loop only."""

    def __init__(self, tokens: Tokens, monotonic: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self._tokens = tokens
        self._monotonic = monotonic
        self._wall_clock = wall_clock
        self._guesses = Guesses()
        self._checking = asyncio.Semaphore(secret_checks_max)
        self._waiting = 0
        #: A keyed hash of each client's verified secret, so that the slow hash is computed only once.
        self._shown: dict[str, bytes] = {}
        self._shown_key = secrets.token_bytes(32)

    # -- administration ----------------------------------------------------------------------------

    async def create(self, user: str, token_s: float) -> NewClient:
        """Create a client whose tokens live for `token_s`. Raises BadRequest, Overloaded."""
        check_account_name("user", user)
        if not granted_token_min_s <= token_s <= granted_token_max_s:
            raise BadRequest(
                f"the lifetime of a client's tokens must be from {granted_token_min_s:g} to "
                f"{granted_token_max_s:g} s"
            )
        if len(self._tokens.book.clients) >= oauth_clients_max:
            raise Overloaded(f"there are {oauth_clients_max} OAuth2 clients, which is the limit")
        secret = secrets.token_urlsafe(32)
        hashed = await asyncio.to_thread(_hash, secret, secrets.token_bytes(_SALT_BYTES))
        client = OAuthClient(secrets.token_hex(8), user, hashed, token_s, self._tokens.now_ms())
        await self._tokens.book.change([client])
        return NewClient(client, secret)

    async def delete(self, client_id: str) -> None:
        """Delete a client and revoke its tokens. Raises FileNotFound, Overloaded."""
        client = self._tokens.book.clients.get(client_id)
        if client is None:
            raise FileNotFound(f"there is no OAuth2 client {client_id}")
        ends_ms = self._tokens.now_ms() + int(client.token_s * 1000)
        await self._tokens.withdraw(client_revocation(client_id), ends_ms, client)
        self._shown.pop(client_id, None)

    # -- grants ------------------------------------------------------------------------------------

    async def by_secret(self, client_id: str, secret: str, address: str) -> GrantedToken:
        """Grant a token for a client's id and secret. Raises OAuthFault."""
        now_s = self._monotonic()
        client = self._tokens.book.clients.get(client_id)
        shown = hmac.digest(self._shown_key, secret.encode(errors="replace"), "sha256")
        known = client is not None and hmac.compare_digest(self._shown.get(client.id, b""), shown)
        if not known:
            if self._guesses.are_too_many(address, now_s):
                raise OAuthFault(
                    "invalid_client",
                    f"too many wrong secrets came from {address}: try again in {wrong_secrets_memory_s:g} s",
                    429,
                )
            # Check even if the client is unknown, so that the duration does not reveal which clients exist.
            if not await self._is_right(secret, client) or client is None:
                self._guesses.wrong(address, now_s)
                raise OAuthFault("invalid_client", "unknown client, or wrong secret", 401)
            if self._tokens.book.clients.get(client_id) is not client:
                raise OAuthFault("invalid_client", "the client was deleted", 401)
            self._shown[client.id] = shown
        assert client is not None
        granted = self._tokens.mint(client.user, client.token_s, client=client.id)
        return GrantedToken(granted.token, int(client.token_s))

    def by_token(self, token: str) -> GrantedToken:
        """Grant the bearer of a token the same token, for its remaining lifetime. Raises OAuthFault.

        A signature cannot be guessed, so there is no limit on attempts.
        """
        now_s = self._wall_clock()
        try:
            found = self._tokens.book.verifier.bearer(token, now_s)
        except Unauthenticated as refusal:
            raise OAuthFault("invalid_grant", refusal.message) from None
        return GrantedToken(token, min(int(found.expires_s - now_s), int(granted_token_max_s)))

    async def _is_right(self, secret: str, client: OAuthClient | None) -> bool:
        if self._waiting >= secret_checks_waiting_max:
            raise OAuthFault("temporarily_unavailable", "too many secrets are being checked; try again", 503)
        self._waiting += 1
        try:
            async with self._checking:
                return await asyncio.to_thread(_matches, secret, client.secret if client else _nobodys_hash())
        finally:
            self._waiting -= 1


def _hash(secret: str, salt: bytes) -> str:
    """Return `scrypt-n-r-p$salt$hash`, with salt and hash in base64."""
    hashed = hashlib.scrypt(
        secret.encode(errors="replace"), salt=salt, n=_SCRYPT_COST, r=_SCRYPT_BLOCK, p=_SCRYPT_PARALLEL, dklen=32
    )
    parts = (base64.b64encode(each).decode() for each in (salt, hashed))
    return "$".join((f"scrypt-{_SCRYPT_COST}-{_SCRYPT_BLOCK}-{_SCRYPT_PARALLEL}", *parts))


def _matches(secret: str, hashed: str) -> bool:
    try:
        salt = base64.b64decode(hashed.split("$")[1], validate=True)
    except (IndexError, binascii.Error):
        return False
    return hmac.compare_digest(_hash(secret, salt), hashed)


def _nobodys_hash() -> str:
    return f"none${base64.b64encode(bytes(_SALT_BYTES)).decode()}$"
