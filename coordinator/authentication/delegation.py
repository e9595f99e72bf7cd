"""Hadoop's delegation tokens: issued, renewed and cancelled as in HDFS, with their records in the metadata."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from peacefs.coordinator.limits import delegation_token_max_s
from peacefs.coordinator.metadata.token_records import DelegationRecord
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.protocol.callers.caller import Caller, Via
from peacefs.protocol.callers.delegation import DelegationToken, Identifier
from peacefs.protocol.callers.verifier import delegation_id, sequence_of
from peacefs.protocol.errors import AccessDenied, Overloaded, Unauthenticated
from peacefs.protocol.values.account_names import check_account_name

from .tokens import Tokens

delegation_token_renewal_s: Final = 86_400.0
delegation_tokens_max: Final = 100_000
# Maximum per owner, so that one user cannot use up `delegation_tokens_max`.
delegation_tokens_per_owner_max: Final = 1000


class DelegationTokens:
    """Issues and verifies delegation tokens. Used from one event loop only."""

    def __init__(self, tokens: Tokens, cluster: str, callers: Callers, wall_clock: Callable[[], float]) -> None:
        self._tokens = tokens
        self._cluster = cluster
        self._callers = callers
        self._wall_clock = wall_clock

    def caller(self, token: str) -> Caller:
        """Return the caller that a valid token authenticates. Raises Unauthenticated."""
        return self._verified(token)[0]

    async def give(self, caller: Caller, user: str, renewer: str, service: str) -> str:
        """Return a new token for `user` as its `urlString`. Raises AccessDenied, BadRequest, Overloaded."""
        if caller.via is Via.DELEGATION:
            raise AccessDenied("Delegation Token can be issued only with a bearer token, not for another")
        check_account_name("user", user)
        if renewer:
            check_account_name("renewer", renewer)
        records = self._tokens.book.delegations
        if len(records) >= delegation_tokens_max:
            raise Overloaded(f"there are {delegation_tokens_max} delegation tokens, which is the limit")
        if sum(each.owner == user for each in records.values()) >= delegation_tokens_per_owner_max:
            raise Overloaded(f"{user} has {delegation_tokens_per_owner_max} delegation tokens: cancel some")
        now_ms = self._tokens.now_ms()
        sequence = self._new_sequence()
        max_ms = now_ms + int(delegation_token_max_s * 1000)
        ends_ms = now_ms + int(delegation_token_renewal_s * 1000)
        real_user = "" if caller.user == user else caller.user
        what = Identifier(user, renewer, now_ms, max_ms, sequence, self._tokens.key.number, real_user)
        token = DelegationToken.issue(what, self._tokens.key, self._cluster, service)
        await self._tokens.book.change([DelegationRecord(sequence, user, renewer, ends_ms, max_ms)])
        return token.url_string()

    async def renew(self, user: str, token: str) -> int:
        """Renew a token. Return its new end, in milliseconds since 1970. Raises AccessDenied, Unauthenticated."""
        record = self._verified(token)[1]
        if user != record.renewer:
            raise AccessDenied(f"{user} tries to renew a token with renewer {record.renewer or '(none)'}")
        ends_ms = min(self._tokens.now_ms() + int(delegation_token_renewal_s * 1000), record.max_ms)
        await self._tokens.book.change([replace(record, ends_ms=ends_ms)])
        return ends_ms

    async def cancel(self, user: str, token: str) -> None:
        """Cancel a token. Raises AccessDenied, Unauthenticated, Overloaded."""
        record = self._verified(token)[1]
        if user not in (record.owner, record.renewer) and not self._callers.of(user).is_superuser:
            raise AccessDenied(f"{user} is not authorized to cancel the token")
        await self._tokens.withdraw(delegation_id(record.sequence), record.max_ms, record)

    def _verified(self, token: str) -> tuple[Caller, DelegationRecord]:
        """Return the caller and the record of a valid token. Raises Unauthenticated."""
        now_s = self._wall_clock()
        caller = self._tokens.book.verifier.delegation(token, now_s).caller
        record = self._tokens.book.delegations.get(sequence_of(caller.token_id))
        if record is None or record.ends_ms <= now_s * 1000:
            raise Unauthenticated(
                f"the delegation token of {caller.user} was not renewed in time, or was cancelled: fetch another"
            )
        return caller, record

    def _new_sequence(self) -> int:
        book = self._tokens.book
        while True:
            sequence = secrets.randbelow(2**31)
            if sequence not in book.delegations and delegation_id(sequence) not in book.revoked:
                return sequence
