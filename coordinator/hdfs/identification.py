"""Identifies the user of an HDFS connection: a claimed name, or a delegation token over SASL."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from peacefs.coordinator.authentication.delegation import DelegationTokens
from peacefs.coordinator.authentication.proxy_users import ProxyUsers
from peacefs.protocol.callers.caller import Caller
from peacefs.protocol.errors import AccessDenied, ProtocolViolation
from peacefs.protocol.hadoop.digest_md5 import REALM, DigestChallenge
from peacefs.protocol.hadoop.rpc_codec import AUTH_SASL
from peacefs.protocol.hadoop.rpc_pb2 import IpcConnectionContextProto, RpcSaslProto
from peacefs.protocol.values.account_names import check_account_name

from .call import Asker

_MECHANISM: Final = "DIGEST-MD5"
_TOKEN: Final = "TOKEN"
_SIMPLE: Final = "SIMPLE"


class Negotiation:
    """The SASL exchange on one connection, until the user is known."""

    def __init__(self, delegation: DelegationTokens | None) -> None:
        self._delegation = delegation
        self._challenge: DigestChallenge | None = None
        #: Authenticates the caller again. Raises Unauthenticated if the token has expired.
        self.authenticate: Callable[[], Caller] | None = None
        self.real_user: str | None = None

    def answer(self, message: RpcSaslProto) -> RpcSaslProto:
        """Return the answer to a client's message. Raises Unauthenticated or ProtocolViolation."""
        if message.state == RpcSaslProto.NEGOTIATE:
            return self._offer()
        if message.state in (RpcSaslProto.INITIATE, RpcSaslProto.RESPONSE):
            return self._verify(message)
        raise ProtocolViolation("this message of SASL is not for a client to send")

    def _offer(self) -> RpcSaslProto:
        offered = RpcSaslProto(state=RpcSaslProto.NEGOTIATE)
        if self._delegation is None:
            offered.auths.add(method=_SIMPLE, mechanism="")
            return offered
        self._challenge = DigestChallenge.new()
        offered.auths.add(
            method=_TOKEN, mechanism=_MECHANISM, protocol="", serverId=REALM, challenge=self._challenge.text
        )
        return offered

    def _verify(self, message: RpcSaslProto) -> RpcSaslProto:
        challenge, self._challenge = self._challenge, None
        if challenge is None or self._delegation is None or self.authenticate is not None:
            raise ProtocolViolation("no challenge of SASL is open on this connection")
        if message.state == RpcSaslProto.INITIATE and [each.method for each in message.auths] != [_TOKEN]:
            raise AccessDenied(f"authentication is by {_TOKEN} alone here: get a delegation token")
        identifier, proof = challenge.verify(message.token, self._delegation.password_of)
        self.authenticate = partial(self._delegation.caller_of, identifier)
        self.authenticate()
        self.real_user = self._delegation.real_user_of(identifier)
        return RpcSaslProto(state=RpcSaslProto.SUCCESS, token=proof)


class Identification:
    """Identifies the user of a connection from `host`."""

    def __init__(self, delegation: DelegationTokens | None, proxy_users: ProxyUsers, host: str | None) -> None:
        self._delegation = delegation
        self._proxy_users = proxy_users
        self._host = host

    def begin(self, auth: int) -> Negotiation | None:
        """Return a SASL exchange; None if the client need not authenticate. Raises AccessDenied."""
        if auth == AUTH_SASL:
            return Negotiation(self._delegation)
        if self._delegation is not None:
            raise AccessDenied("SIMPLE authentication is not enabled.  Available:[TOKEN]")
        return None

    def introduce(self, context: IpcConnectionContextProto, negotiation: Negotiation | None) -> Asker:
        """Return the caller. Raises AccessDenied, ImpersonationRefused or BadRequest."""
        said = context.userInfo
        if self._delegation is None:
            return self._believed(said.effectiveUser, said.realUser)
        if negotiation is None or negotiation.authenticate is None:
            raise AccessDenied("the connection has not been authenticated")
        caller = negotiation.authenticate()
        if said.effectiveUser and said.effectiveUser != caller.user:
            raise AccessDenied(
                f"Authenticated user ({caller.user}) doesn't match what the client claims to be "
                f"({said.effectiveUser[:100]})"
            )
        return Asker(caller.user, self._host, negotiation.real_user, negotiation.authenticate)

    def _believed(self, user: str, real_user: str) -> Asker:
        check_account_name("user", user)
        if real_user and real_user != user:
            check_account_name("user", real_user)
            self._proxy_users.authorize(real_user, user, self._host)
            return Asker(user, self._host, real_user)
        return Asker(user, self._host)
