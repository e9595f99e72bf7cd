"""Methods of ClientNamenodeProtocol about delegation tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from peacefs.coordinator.authentication.delegation import DelegationTokens
from peacefs.protocol.callers.delegation import DelegationToken
from peacefs.protocol.errors import Unsupported
from peacefs.protocol.hadoop import attributes_pb2 as pb
from peacefs.protocol.hadoop.hdfs_pb2 import TokenProto

from .method import Method, MethodCall


def _tokens(call: MethodCall) -> DelegationTokens:
    if call.served.delegation is None:
        raise Unsupported("this coordinator believes names (--authentication simple): it has given no tokens")
    return call.served.delegation


def _text(token: TokenProto) -> str:
    return DelegationToken(token.identifier, token.password, token.kind, token.service).url_string()


async def _get(call: MethodCall, asked: pb.GetDelegationTokenRequestProto) -> pb.GetDelegationTokenResponseProto:
    """Return no token if there is no authentication. As with insecure HDFS, clients continue without one."""
    if call.served.delegation is None or call.caller is None:
        return pb.GetDelegationTokenResponseProto()
    text = await call.served.delegation.give(call.caller, call.user, asked.renewer, "")
    token = DelegationToken.parse(text)
    made = TokenProto(identifier=token.identifier, password=token.password, kind=token.kind, service=token.service)
    return pb.GetDelegationTokenResponseProto(token=made)


async def _renew(
    call: MethodCall, asked: pb.RenewDelegationTokenRequestProto
) -> pb.RenewDelegationTokenResponseProto:
    ends_ms = await _tokens(call).renew(call.user, _text(asked.token))
    return pb.RenewDelegationTokenResponseProto(newExpiryTime=ends_ms)


async def _cancel(
    call: MethodCall, asked: pb.CancelDelegationTokenRequestProto
) -> pb.CancelDelegationTokenResponseProto:
    await _tokens(call).cancel(call.user, _text(asked.token))
    return pb.CancelDelegationTokenResponseProto()


TOKEN_METHODS: Final[Mapping[str, Method]] = {
    "getDelegationToken": Method(pb.GetDelegationTokenRequestProto, _get),
    "renewDelegationToken": Method(pb.RenewDelegationTokenRequestProto, _renew),
    "cancelDelegationToken": Method(pb.CancelDelegationTokenRequestProto, _cancel),
}
