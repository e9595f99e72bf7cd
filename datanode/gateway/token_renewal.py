"""Renewal of a read token while a long answer is sent, so that it ends when the reader's rights are taken away.

The coordinator is asked beside the sending, which does not wait for the answer. One that is away takes no rights
away: what is being sent goes on, and it is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from peacefs.protocol.errors import AccessDenied, PeacefsError
from peacefs.protocol.messages import GetLayout, Layout
from peacefs.protocol.tokens import FileRead, Signer
from peacefs.runtime import effects as fx

# When a file is being sent and the coordinator does not say whether it still may be, it is asked again so soon.
read_renewal_retry_s: Final = 5.0


#: Runs a participant on a thread that is not the event loop's.
Run = Callable[[fx.Steps[Any]], asyncio.Future[Any]]


class ReadTokenRenewal:
    """Renew the token of one answer; belongs to the event loop."""

    def __init__(self, signer: Signer, wall_clock: Callable[[], float], run: Run, token: str, held: str) -> None:
        """`held` is the token of one of the file's chunks: so little is asked about."""
        self._signer = signer
        self._wall_clock = wall_clock
        self._run = run
        self._token = token
        self._held = held
        self._due_s = signer.verify_even_late(token, FileRead).expires_s
        self._renewing: asyncio.Future[Layout] | None = None

    def check(self) -> None:
        """To be called before each piece is fetched. Raises AccessDenied once the coordinator has refused."""
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
                # The coordinator is away, or the file was deleted: who has it open reads on.
                self._due_s = self._wall_clock() + read_renewal_retry_s
            else:
                self._due_s = self._signer.verify_even_late(self._token, FileRead).expires_s


def _heard(renewing: asyncio.Future[Layout]) -> None:
    """Nobody may be left to hear how it ended."""
    if not renewing.cancelled():
        renewing.exception()
