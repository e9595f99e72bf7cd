"""The tokens in the signed URLs of a gateway: checks whether they are valid, for whom, and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from peacefs.protocol.asgi import Scope
from peacefs.protocol.messages import ChunkLayout, Layout
from peacefs.protocol.tokens import ChunkRead, FileAppend, FileRead, FileWrite, Signer

from .token_renewal import ReadTokenRenewal, Run

Write = TypeVar("Write", FileWrite, FileAppend)
#: Raises AccessDenied if the request's user is not the token's.
CheckBearer = Callable[[Scope, str, str], None]


def believe_bearer(scope: Scope, user: str, token: str) -> None:
    """Accept any caller: with simple authentication, a token is valid for anyone who has it."""


class UrlTokens:
    """Verifies the tokens of requests, for the gateway, on its event loop."""

    def __init__(
        self,
        signer: Signer,
        wall_clock: Callable[[], float] = time.time,
        check_bearer: CheckBearer = believe_bearer,
    ) -> None:
        """`check_bearer` raises if the token in the URL was given to another user than the caller."""
        self._signer = signer
        self._wall_clock = wall_clock
        self._check_bearer = check_bearer

    def writing(self, token: str, kind: type[Write], scope: Scope) -> Write:
        """Return the token of a request to write. Raises AccessDenied."""
        verified = self._signer.verify(token, kind, self._wall_clock())
        self._check_bearer(scope, verified.user, token)
        return verified

    def reading(self, token: str, scope: Scope) -> FileRead:
        """Return the token of a request to read, which may have expired. Raises AccessDenied."""
        verified = self._signer.verify_even_late(token, FileRead)
        self._check_bearer(scope, verified.user, token)
        return verified

    def seconds_left(self, token: FileWrite | FileAppend) -> float:
        """Return the remaining lifetime of a token."""
        return token.expires_s - self._wall_clock()

    def chunks(self, token: FileRead) -> Sequence[ChunkLayout]:
        """Return the chunks in the token; empty if it has expired, because the file may have changed."""
        return token.chunks if token.chunks and token.expires_s >= self._wall_clock() else []

    def layout(self, token: FileRead, chunks: Sequence[ChunkLayout]) -> Layout:
        """Return the layout that the coordinator signed, with a token to read each chunk."""
        tokens = [self._signer.sign(ChunkRead(token.expires_s, chunk.chunk, token.inode)) for chunk in chunks]
        named = [replace(chunk, token=token) for chunk, token in zip(chunks, tokens, strict=True)]
        return Layout(sum(chunk.length for chunk in chunks), named)

    def renewal(self, run: Run, token: str, held: str) -> ReadTokenRenewal:
        """Return an object that renews a read token while its file is sent. For `held` see `ReadTokenRenewal`."""
        return ReadTokenRenewal(self._signer, self._wall_clock, run, token, held)
