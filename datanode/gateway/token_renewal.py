"""Renews a read token while a long answer is sent, so that the answer ends if the reader loses its rights.

Sending continues while the coordinator is asked. If it cannot be reached, it is asked again later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from peacefs.protocol.errors import AccessDenied, PeacefsError
from peacefs.protocol.messages import GetLayout, Layout
from peacefs.protocol.tokens import FileRead, Signer
from peacefs.runtime import effects as fx

# Pause before asking again if the coordinator did not say whether the file may still be read.
read_renewal_retry_s: Final = 5.0


#: Runs a participant on another thread than the event loop's.
Run = Callable[[fx.Steps[Any]], asyncio.Future[Any]]


class ReadTokenRenewal:
    """Renews the token of one answer. Belongs to the event loop."""

    def __init__(self, signer: Signer, wall_clock: Callable[[], float], run: Run, token: str, held: str) -> None:
        """`held` is the token of one chunk of the file. Naming one chunk keeps the request small."""
        self._signer = signer
        self._wall_clock = wall_clock
        self._run = run
        self._token = token
        self._held = held
        self._due_s = signer.verify_even_late(token, FileRead).expires_s
        self._renewing: asyncio.Future[Layout] | None = None

    def check(self) -> None:
        """Renew the token if it is due. Call before each piece. Raises AccessDenied after a refusal."""
        if self._renewing is None:
            if self._wall_clock() >= self._due_s:
                self._renewing = self._run(fx.call(GetLayout(self._token, self._held), Layout))
                self._renewing.add_done_callback(_heard)
        elif self._renewing.done():
            renewing, self._renewing = self._renewing, None
            try:
                self._token = renewing.result().token
            except AccessDenied:
                raise
            except PeacefsError:
                # The coordinator is away, or the file was deleted: a reader that has it open may continue.
                self._due_s = self._wall_clock() + read_renewal_retry_s
            else:
                self._due_s = self._signer.verify_even_late(self._token, FileRead).expires_s


def _heard(renewing: asyncio.Future[Layout]) -> None:
    """Mark the error as seen, because the answer may have ended already."""
    if not renewing.cancelled():
        renewing.exception()
