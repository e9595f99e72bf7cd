"""The credential records of the metadata, in memory. A record is here only once it is committed.

When trusted keys or revocations change, the coordinator's verifier is told at once, and datanodes by `trust`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from peacefs.coordinator.metadata.group_commit import Commit
from peacefs.coordinator.metadata.token_records import (
    DelegationRecord,
    IssuedToken,
    KeyRecord,
    OAuthClient,
    RevokedToken,
    TokenRecord,
    TokenRecords,
)
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.callers.verifier import Verifier
from peacefs.protocol.messages import Trust, TrustedKey

T = TypeVar("T")


class CredentialBook:
    """All credential records, and the `Trust` derived from them. `Tokens`, `OAuthClients` and `DelegationTokens`
    change them by `change`, which commits first. Used from one event loop only.
    """

    def __init__(self, recorded: TokenRecords, commit: Commit, verifier: Verifier) -> None:
        self._commit = commit
        self.verifier = verifier
        #: Called whenever `trust` has changed.
        self.on_trust: Callable[[], None] = lambda: None
        self.keys: dict[int, KeyRecord] = {}
        self.issued: dict[str, IssuedToken] = {}
        self.revoked: dict[str, RevokedToken] = {}
        self.clients: dict[str, OAuthClient] = {}
        self.delegations: dict[int, DelegationRecord] = {}
        self.recall(recorded)

    def recall(self, recorded: TokenRecords) -> None:
        """Replace all records, at a start and after another coordinator has changed them."""
        for known in (self.keys, self.issued, self.revoked, self.clients, self.delegations):
            known.clear()
        everything: list[TokenRecord] = [*recorded.keys, *recorded.issued, *recorded.revoked, *recorded.clients]
        for each in (*everything, *recorded.delegations):
            self._take_in(each)
        self.trust = Trust()
        self._tell()

    def over(self, now_ms: int) -> list[TokenRecord]:
        """Return the records that have expired."""
        ending: list[KeyRecord | IssuedToken | RevokedToken | DelegationRecord] = [
            *self.keys.values(),
            *self.issued.values(),
            *self.revoked.values(),
            *self.delegations.values(),
        ]
        return [each for each in ending if each.ends_ms is not None and each.ends_ms <= now_ms]

    async def change(
        self,
        record: Sequence[TokenRecord] = (),
        forget: Iterable[TokenRecord] = (),
        *,
        in_any_case: bool = False,
    ) -> None:
        """Commit all of a change or nothing, then apply it in memory. Raises ServiceUnready.

        The change is completed even if the caller is cancelled, so that memory matches the metadata.
        """
        await asyncio.shield(asyncio.ensure_future(self._carry_through(record, list(forget), in_any_case)))

    async def _carry_through(
        self, record: Sequence[TokenRecord], forget: list[TokenRecord], in_any_case: bool
    ) -> None:
        def change(tx: Transaction) -> None:
            for each in forget:
                tx.forget_token(each)
            for each in record:
                tx.record_token(each)

        await self._commit(change, in_any_case=in_any_case)
        for each in forget:
            self._take_out(each)
        for each in record:
            self._take_in(each)
        self._tell()

    def _take_in(self, credential: TokenRecord) -> None:
        match credential:
            case KeyRecord():
                self.keys[credential.number] = credential
            case IssuedToken():
                self.issued[credential.id] = credential
            case RevokedToken():
                self.revoked[credential.id] = credential
            case OAuthClient():
                self.clients[credential.id] = credential
            case DelegationRecord():
                self.delegations[credential.sequence] = credential

    def _take_out(self, credential: TokenRecord) -> None:
        match credential:
            case KeyRecord():
                self.keys.pop(credential.number, None)
            case IssuedToken():
                self.issued.pop(credential.id, None)
            case RevokedToken():
                self.revoked.pop(credential.id, None)
            case OAuthClient():
                self.clients.pop(credential.id, None)
            case DelegationRecord():
                self.delegations.pop(credential.sequence, None)

    def _tell(self) -> None:
        """Rebuild `trust`, and tell the verifier and `on_trust` if it has changed."""
        keys = [
            TrustedKey(key.number, key.public, 0.0 if key.ends_ms is None else key.ends_ms / 1000)
            for _, key in sorted(self.keys.items())
        ]
        trust = Trust(is_required=True, keys=keys, revoked=sorted(self.revoked))
        if trust != self.trust:
            self.trust = trust
            self.verifier.trust(trust)
            self.on_trust()
