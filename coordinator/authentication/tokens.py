"""Bearer tokens: create, list and revoke them, and rotate the keys that sign them.

Each coordinator has its own signing key. The public half is committed before the key signs anything. A replaced
key still verifies until the last token that it may have signed has expired.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from peacefs.coordinator.limits import bearer_token_min_s, delegation_token_max_s, granted_token_max_s, run_token_s
from peacefs.coordinator.metadata.token_records import IssuedToken, KeyRecord, RevokedToken, TokenRecord
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.protocol.callers.bearer import SigningKey
from peacefs.protocol.callers.verifier import delegation_id
from peacefs.protocol.errors import BadRequest, FileNotFound, Overloaded, ServiceUnready, StartupError
from peacefs.protocol.values.account_names import check_account_name

from .book import CredentialBook
from .key_file import KeyFile

bearer_token_max_s: Final = 366 * 86_400.0
# Maximum number of listed tokens, and of revocations. Every datanode gets all revocations.
issued_tokens_max: Final = 10_000
revoked_tokens_max: Final = 10_000
# How often expired credentials are removed.
credentials_tidy_interval_s: Final = 60.0


log = logging.getLogger("peacefs.coordinator")


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token, which is not stored and cannot be shown again, with its properties."""

    token: str
    id: str
    user: str
    is_administrator: bool
    ends_ms: int


class Tokens:
    """Creates and revokes bearer tokens, and rotates the signing key. REST and the other token services call it.

    After `begin`, the public half of the signing key is always committed. Used from one event loop only.
    """

    def __init__(
        self,
        book: CredentialBook,
        key_file: KeyFile,
        cluster: str,
        callers: Callers,
        wall_clock: Callable[[], float],
    ) -> None:
        self.book = book
        self._key_file = key_file
        self._cluster = cluster
        self._callers = callers
        self._wall_clock = wall_clock
        self._key: SigningKey
        self._rotating = asyncio.Lock()

    async def begin(self) -> None:
        """Read the signing key from its file, or create one. Call this first. Raises StartupError."""
        key = self._key_file.read()
        if key is None:
            key = SigningKey.generate()
            self._write(key)
        await self._sign_with(key)

    def now_ms(self) -> int:
        return int(self._wall_clock() * 1000)

    @property
    def key(self) -> SigningKey:
        """The key that signs."""
        return self._key

    # -- tokens ------------------------------------------------------------------------------------

    async def create(self, user: str, lifetime_s: float, *, is_administrator: bool) -> NewToken:
        """Create a token and list it. Raises BadRequest, Overloaded."""
        check_account_name("user", user)
        if not bearer_token_min_s <= lifetime_s <= bearer_token_max_s:
            raise BadRequest(
                f"the lifetime of a token must be from {bearer_token_min_s:g} s to "
                f"{bearer_token_max_s / 86_400:g} days"
            )
        if is_administrator and not self._callers.of(user).is_superuser:
            raise BadRequest(
                f"{user} is no superuser: an administrator's token is for the coordinator's own user, and for "
                "those in the group supergroup (--group supergroup=...)"
            )
        if len(self.book.issued) >= issued_tokens_max:
            raise Overloaded(f"{issued_tokens_max} tokens have not expired yet, which is the limit")
        token = self.mint(user, lifetime_s, is_administrator=is_administrator)
        await self.book.change([IssuedToken(token.id, user, is_administrator, self.now_ms(), token.ends_ms)])
        return token

    def mint(self, user: str, lifetime_s: float, *, is_administrator: bool = False, client: str = "") -> NewToken:
        """Create a token without listing it, for short lifetimes."""
        now_s = self._wall_clock()
        token_id = secrets.token_hex(8)
        ends_s = int(now_s + lifetime_s)
        token = self._key.token(
            cluster=self._cluster,
            user=user,
            token_id=token_id,
            issued_s=now_s,
            expires_s=ends_s,
            is_administrator=is_administrator,
            client=client,
        )
        return NewToken(token, token_id, user, is_administrator, ends_s * 1000)

    async def revoke(self, token_id: str) -> None:
        """Revoke a listed token or a delegation token by its id. Raises FileNotFound, Overloaded."""
        issued = self.book.issued.get(token_id)
        delegation = next(
            (each for each in self.book.delegations.values() if delegation_id(each.sequence) == token_id), None
        )
        if issued is not None:
            await self.withdraw(token_id, issued.ends_ms, issued)
        elif delegation is not None:
            await self.withdraw(token_id, delegation.max_ms, delegation)
        elif token_id not in self.book.revoked:
            raise FileNotFound(f"there is no token {token_id}: `peacefs token list` shows those there are")

    async def withdraw(self, token_id: str, ends_ms: int, *gone: TokenRecord) -> None:
        """Revoke this id, and remove the records `gone` in the same commit. Raises Overloaded."""
        if len(self.book.revoked) >= revoked_tokens_max:
            raise Overloaded(
                f"{revoked_tokens_max} tokens are revoked already, which is the limit: end all tokens there are "
                "with `peacefs token rotate-keys --end-all`"
            )
        await self.book.change([RevokedToken(token_id, ends_ms)], gone)

    # -- keys --------------------------------------------------------------------------------------

    async def rotate(self, *, end_all: bool) -> None:
        """Sign with a new key from now on. With `end_all`, all earlier tokens become invalid.

        Raises ServiceUnready if the change fails; the old key then continues to sign.
        """
        async with self._rotating:
            key = SigningKey.generate()
            # Commit the key before keeping it: a key that no one can verify must not sign.
            await self.book.change([KeyRecord(key.number, key.verification.public, self.now_ms())])
            try:
                await asyncio.to_thread(self._key_file.write, key)
            except OSError as error:
                raise ServiceUnready(f"the new key cannot be kept: {error.strerror or error}") from None
            await self._sign_with(key, end_all=end_all)
            log.info("tokens are signed with key %08x from now on", key.number)

    async def _sign_with(self, key: SigningKey, *, end_all: bool = False) -> None:
        """Make `key` the only key that signs. The others only verify, until their last token has expired."""
        now_ms = self.now_ms()
        own = self.book.keys.get(key.number)
        record: list[TokenRecord] = []
        forget: list[TokenRecord] = []
        if own is None or own.ends_ms is not None:
            record.append(KeyRecord(key.number, key.verification.public, now_ms))
        for other in self.book.keys.values():
            if other.number == key.number:
                continue
            if end_all:
                forget.append(other)
            elif other.ends_ms is None:
                record.append(replace(other, ends_ms=self._last_end_ms(now_ms)))
        over: list[TokenRecord] = [*self.book.issued.values(), *self.book.delegations.values()] if end_all else []
        if record or forget or over:
            await self.book.change(record, [*forget, *over])
        self._key = key

    def _last_end_ms(self, now_ms: int) -> int:
        """Return when the last token that may have been signed so far expires."""
        others_s = max(delegation_token_max_s, granted_token_max_s, run_token_s)
        return max([now_ms + int(others_s * 1000), *(each.ends_ms for each in self.book.issued.values())])

    def _write(self, key: SigningKey) -> None:
        try:
            self._key_file.write(key)
        except OSError as error:
            raise StartupError(f"the key for tokens cannot be kept: {error.strerror or error}") from None

    # -- in the background -------------------------------------------------------------------------

    async def keep_tidy(self) -> None:
        """Call `tidy` periodically, for ever."""
        while True:
            await asyncio.sleep(credentials_tidy_interval_s)
            with contextlib.suppress(ServiceUnready):
                await self.tidy()

    async def tidy(self) -> None:
        """Remove expired records. Raises ServiceUnready if nothing can be committed."""
        over = self.book.over(self.now_ms())
        if over:
            await self.book.change(forget=over, in_any_case=True)
