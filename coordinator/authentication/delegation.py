"""Hadoop's delegation tokens: issued, renewed and cancelled as in HDFS, with their records in the metadata."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from peacefs.coordinator.limits import delegation_token_max_s
from peacefs.coordinator.metadata.token_records import DelegationRecord
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.protocol.callers.caller import Caller, Via
from peacefs.protocol.callers.delegation import HDFS_KIND, KIND, DelegationToken, Identifier
from peacefs.protocol.callers.verifier import delegation_id, sequence_of
from peacefs.protocol.errors import AccessDenied, BadRequest, Overloaded, Unauthenticated
from peacefs.protocol.tokens import Signer
from peacefs.protocol.values.account_names import check_account_name

from .tokens import Tokens

delegation_token_renewal_s: Final = 86_400.0
delegation_tokens_max: Final = 100_000
# A service is an address: a host name and a port.
service_characters_max: Final = 300
# Maximum per owner, so that one user cannot use up `delegation_tokens_max`.
delegation_tokens_per_owner_max: Final = 1000


class DelegationTokens:
    """Issues and verifies delegation tokens. Used from one event loop only."""

    def __init__(
        self, tokens: Tokens, cluster: str, callers: Callers, signer: Signer, wall_clock: Callable[[], float]
    ) -> None:
        self._tokens = tokens
        self._signer = signer
        self._cluster = cluster
        self._callers = callers
        self._wall_clock = wall_clock

    def caller(self, token: str) -> Caller:
        """Return the caller that a valid token authenticates. Raises Unauthenticated."""
        return self._verified(token)[0]

    def password_of(self, identifier: bytes) -> bytes:
        """Return the password of a token for `hdfs://`. Raises Unauthenticated."""
        password = self._signer.password(identifier, Identifier.decode(identifier).key)
        if password is None:
            raise Unauthenticated("the delegation token is none of this cluster's, or its key was given up")
        return password

    def caller_of(self, identifier: bytes) -> Caller:
        """Return the caller of a token for `hdfs://` whose password was proved. Raises Unauthenticated."""
        said = Identifier.decode(identifier)
        self._record_of(said.sequence, said.owner)
        return Caller(said.owner, Via.DELEGATION, False, delegation_id(said.sequence))

    @staticmethod
    def real_user_of(identifier: bytes) -> str | None:
        """Return the service that fetched a token for its owner, if one did."""
        return Identifier.decode(identifier).real_user or None

    async def give(self, caller: Caller, user: str, renewer: str, service: str, kind: str = KIND) -> str:
        """Return a new token for `user` as its `urlString`. Raises AccessDenied, BadRequest, Overloaded."""
        if kind not in (KIND, HDFS_KIND):
            raise BadRequest(
                f"a delegation token of kind {kind[:100]!r} does not exist: {KIND!r} or {HDFS_KIND!r}"
            )
        if caller.via is Via.DELEGATION:
            raise AccessDenied("Delegation Token can be issued only with a bearer token, not for another")
        check_account_name("user", user)
        if renewer:
            check_account_name("renewer", renewer)
        if len(service) > service_characters_max:
            raise BadRequest(f"the service of a token has {service_characters_max} characters at most")
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
        number = self._signer.password_key if kind == HDFS_KIND else self._tokens.key.number
        what = Identifier(user, renewer, now_ms, max_ms, sequence, number, real_user)
        if kind == HDFS_KIND:
            identifier = what.encode()
            token = DelegationToken(identifier, self.password_of(identifier), kind, service)
        else:
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
        parsed = DelegationToken.parse(token)
        if parsed.kind == HDFS_KIND:
            if not hmac.compare_digest(parsed.password, self.password_of(parsed.identifier)):
                raise Unauthenticated("the delegation token is none of this cluster's, or its key was given up")
            caller = self.caller_of(parsed.identifier)
        else:
            caller = self._tokens.book.verifier.delegation(token, self._wall_clock()).caller
        return caller, self._record_of(sequence_of(caller.token_id), caller.user)

    def _record_of(self, sequence: int, owner: str) -> DelegationRecord:
        """Return the record of a token that has not ended. Raises Unauthenticated."""
        record = self._tokens.book.delegations.get(sequence)
        if record is None or record.owner != owner or record.ends_ms <= self._wall_clock() * 1000:
            raise Unauthenticated(
                f"the delegation token of {owner} was not renewed in time, or was cancelled: fetch another"
            )
        return record

    def _new_sequence(self) -> int:
        book = self._tokens.book
        while True:
            sequence = secrets.randbelow(2**31)
            if sequence not in book.delegations and delegation_id(sequence) not in book.revoked:
                return sequence
