"""Decides when a file is shown during its upload, when its bytes are flushed, and when its lease is renewed. Pure.

If the body ends quickly, the file is published whole, in one commit. Otherwise its name is shown, empty. From then
on bytes are flushed when the body pauses, and when the oldest byte has waited long.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import Final

from peacefs.datanode.limits import upload_pause_s
from peacefs.protocol.limits import lease_renewal_s

upload_age_s_max: Final = 5.0
# Interval at which the token of an idle upload is renewed.
upload_token_renewal_s: Final = 3600.0


class FlushStep(Enum):
    SHOW = "have the name appear"
    FLUSH = "make what has come part of the file"
    RENEW = "say that the writer is there"


class FlushTimes:
    """Decides when an upload is shown, flushed and renewed. `BodyWriter` passes in the time and reports events."""

    def __init__(
        self, now_s: float, *, may_appear: bool, has_lease: bool, pause_s: float = upload_pause_s
    ) -> None:
        self._pause_s = pause_s
        self._began_s = now_s
        #: True if the name may be visible before the file is complete.
        self.may_appear = may_appear
        self._has_lease = has_lease
        self._last_s = now_s
        self._oldest_s: float | None = None
        self._flushed_s = self._renewed_s = now_s
        self._not_before_s = now_s

    def age_s(self, now_s: float) -> float:
        """Return the time since the body began to arrive."""
        return now_s - self._began_s

    def received(self, now_s: float) -> None:
        """Record that bytes have arrived."""
        self._last_s = now_s
        if self._oldest_s is None:
            self._oldest_s = now_s

    def taken(self) -> None:
        """Record that everything received is being flushed."""
        self._oldest_s = None

    def shown(self, now_s: float) -> None:
        """Record that the name is visible and the writer has a lease."""
        self._has_lease = True
        self._flushed_s = self._renewed_s = now_s

    def flushed(self, now_s: float) -> None:
        """Record that a flush succeeded, which renews the lease and its token."""
        self._flushed_s = self._renewed_s = now_s

    def renewed(self, now_s: float) -> None:
        """Record that the lease was renewed."""
        self._renewed_s = now_s

    def hidden(self) -> None:
        """Decide to show the file only when it is complete."""
        self.may_appear = False

    def failed(self, now_s: float) -> None:
        """Record a temporary error: the step is retried after a pause."""
        self._not_before_s = now_s + self._pause_s

    def is_old(self, now_s: float) -> bool:
        """Return whether to flush a long part at the end of its chunk, because it arrives without pauses."""
        return self._has_lease and now_s - self._flushed_s >= upload_age_s_max

    def due(self, now_s: float, *, is_long: bool) -> FlushStep | None:
        """Return the step to take now. A long part is written while it arrives, and flushed only in a pause."""
        steps = self._times(is_long=is_long)
        return next((step for step, at_s in steps if now_s >= max(at_s, self._not_before_s)), None)

    def next_s(self, *, is_long: bool) -> float:
        """Return the earliest time at which a step is due, if nothing else happens."""
        return max(min(at_s for _, at_s in self._times(is_long=is_long)), self._not_before_s)

    def _times(self, *, is_long: bool) -> list[tuple[FlushStep, float]]:
        if not self._has_lease:
            return [(FlushStep.SHOW, self._began_s + self._pause_s if self.may_appear else inf)]
        flush_s = self._flushed_s + upload_token_renewal_s
        if self._oldest_s is not None:
            oldest_s = inf if is_long else self._oldest_s + upload_age_s_max
            flush_s = min(flush_s, self._last_s + self._pause_s, oldest_s)
        return [(FlushStep.FLUSH, flush_s), (FlushStep.RENEW, self._renewed_s + lease_renewal_s)]
