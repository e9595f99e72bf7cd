"""Learns which writes are periodic: the period, phase and size of each recurrence.

A recurrence is all writes of one class below one root (a Spark checkpoint, a dataflow unit, or any directory). Its
writes are grouped into occurrences by their pauses: a pause of more than half of the usual long pause begins a new
occurrence. The period is the median time between the last occurrences. Up to two of these times may be irregular,
so a missed or late occurrence changes nothing. After a change of the period, there is no estimate for a few
occurrences.

A batch may write at its beginning and at its end. If the occurrences are irregular, this is assumed, and only
pauses almost as long as the longest one begin a new occurrence.

The phase is the median time of the last occurrences within the period. It follows a slow drift.

Pure and bounded: the least recently active recurrences are forgotten first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise
from statistics import median
from typing import Final

from peacefs.protocol.values.write_classes import WriteClass

recurrences_max: Final = 16_384

#: The number of recent occurrences, and of recent pauses, that estimates are made from.
_OCCURRENCES = 8
_PAUSES = 32

#: Shorter pauses never begin an occurrence, and longer pauses always do.
_PAUSE_MIN_S = 0.2
_PAUSE_MAX_S = 60.0

#: The minimum number of occurrences for an estimate.
_ENOUGH = 4

#: A time between occurrences is irregular if it differs from the median by more than this share.
_IRREGULAR = 0.15

#: A pause is almost as long as the longest one if it has at least this share of its length.
_ALMOST = 0.75

#: If an occurrence lasts for this many periods, the writer now makes shorter pauses than before.
_TOO_LONG_PERIODS = 1.5

#: A recurrence ends if it is silent for this many periods, and for this time.
_SILENT_PERIODS = 4
_SILENT_MIN_S = 10.0

#: A recurrence without a known period ends after this silence.
_SILENT_S = 600.0


@dataclass(frozen=True, slots=True)
class RecurrenceKey:
    """The root of the writes, and their class."""

    root: str
    write_class: WriteClass


@dataclass(frozen=True, slots=True)
class Forecast:
    """The estimates for a regular recurrence.

    `phase_s` is from 0 to `period_s`, by the clock of the events. `spread_s` is the median deviation of the times
    between occurrences from `period_s`. `size` is the median size of an occurrence in bytes, and `size_max` the
    largest. `duration_s` is the median time from the first to the last write of an occurrence.
    """

    key: RecurrenceKey
    period_s: float
    phase_s: float
    spread_s: float
    size: int
    size_max: int
    duration_s: float
    occurrences: int
    last_s: float

    def next_s(self, now_s: float) -> float:
        """Return the time of the first expected occurrence after `now_s`."""
        whole = (now_s - self.phase_s) // self.period_s + 1
        return self.phase_s + whole * self.period_s


@dataclass(slots=True)
class _Occurrence:
    began_s: float
    touched_s: float
    size: int = 0


@dataclass(slots=True)
class _Record:
    """The recent occurrences of one recurrence. The last one may still be under way."""

    occurrences: deque[_Occurrence] = field(default_factory=lambda: deque(maxlen=_OCCURRENCES))
    pauses: deque[float] = field(default_factory=lambda: deque(maxlen=_PAUSES))
    total: int = 0
    #: True if only pauses almost as long as the longest one begin an occurrence.
    only_longest: bool = False
    #: A longer pause begins a new occurrence.
    pause_s: float = _PAUSE_MIN_S
    period_s: float = 0.0
    user: str = ""


class Recurrences:
    """All recurrences, learned from `wrote`. The coordinator and the simulator use it."""

    def __init__(self, count_max: int = recurrences_max) -> None:
        self._count_max = count_max
        self._records: dict[RecurrenceKey, _Record] = {}
        #: The number of writes that began an occurrence, so that users of forecasts notice changes.
        self.occurrences_total = 0

    def wrote(self, now_s: float, key: RecurrenceKey, size: int, user: str = "") -> None:
        """Record that a write of `size` bytes ended now. With 0, record that a writer began or continued."""
        record = self._records.pop(key, None)
        if record is None:
            record = _Record()
            self._forget_old(now_s)
        self._records[key] = record
        record.user = user
        current = record.occurrences[-1] if record.occurrences else None
        pause_s = 0.0 if current is None else now_s - current.touched_s
        if pause_s > _PAUSE_MIN_S:
            record.pauses.append(pause_s)
            if current is not None and pause_s <= record.pause_s:
                _notice_shorter_pauses(record, now_s, pause_s)
        if current is None or pause_s > record.pause_s:
            record.occurrences.append(_Occurrence(now_s, now_s, size))
            record.total += 1
            record.pause_s, record.period_s = _pause_s(record), _period_s(record)
            if len(record.occurrences) == _OCCURRENCES and not _is_regular(record):
                _learn_pause_again(record, only_longest=not record.only_longest)
            self.occurrences_total += 1
            return
        current.touched_s = now_s
        current.size += size

    def writes(self, key: RecurrenceKey) -> bool:
        """Return whether any write of this recurrence is known."""
        return key in self._records

    def forecast(self, key: RecurrenceKey, now_s: float) -> Forecast | None:
        """Return the estimates for a recurrence; None if it is irregular, ended, or too new."""
        record = self._records.get(key)
        return None if record is None else _forecast(key, record, now_s)

    def forecasts(self, now_s: float, count_max: int = recurrences_max) -> Iterator[Forecast]:
        """Yield the forecasts of regular recurrences, most recently active first.

        Considers the `count_max` most recently active recurrences.
        """
        for key, record in islice(reversed(self._records.items()), count_max):
            found = _forecast(key, record, now_s)
            if found is not None:
                yield found

    def user_of(self, key: RecurrenceKey) -> str:
        """Return the user of the last write; empty if unknown."""
        record = self._records.get(key)
        return "" if record is None else record.user

    def _forget_old(self, now_s: float) -> None:
        """Forget recurrences that have been silent for long, and the oldest ones if there are too many."""
        while self._records:
            key = next(iter(self._records))
            silent_s = now_s - self._records[key].occurrences[-1].touched_s
            if silent_s < _SILENT_S and len(self._records) < self._count_max:
                return
            del self._records[key]

    def __len__(self) -> int:
        return len(self._records)


def _pause_s(record: _Record) -> float:
    """Return the length of a pause that begins an occurrence: half of the median of the long pauses.

    A pause is long if it has at least a quarter of the length of the longest one.
    """
    pauses = record.pauses
    if not pauses:
        return _PAUSE_MIN_S
    longest_s = max(pauses)
    if record.only_longest:
        pause_s = _ALMOST * longest_s
    else:
        pause_s = median(pause for pause in pauses if pause >= longest_s / 4) / 2
    return min(_PAUSE_MAX_S, max(_PAUSE_MIN_S, pause_s))


def _notice_shorter_pauses(record: _Record, now_s: float, pause_s: float) -> None:
    """Forget earlier pauses if the occurrence lasts too long, because the writer now makes shorter pauses."""
    if 0 < record.period_s * _TOO_LONG_PERIODS < now_s - record.occurrences[-1].began_s:
        record.pauses.clear()
        record.pauses.append(pause_s)
        _learn_pause_again(record, only_longest=False)


def _learn_pause_again(record: _Record, *, only_longest: bool) -> None:
    """Restart the grouping into occurrences with a new pause length."""
    record.only_longest = only_longest
    last = record.occurrences[-1]
    record.occurrences.clear()
    record.occurrences.append(last)
    record.pause_s, record.period_s = _pause_s(record), 0.0


def _is_regular(record: _Record) -> bool:
    """Return whether the times between occurrences are similar, except for up to two of seven."""
    period_s = record.period_s
    differences_s = sorted(abs(each - period_s) for each in _between_s(record))
    regular = len(differences_s) - (len(differences_s) - 2) // 2
    return period_s > 0 and differences_s[regular - 1] <= _IRREGULAR * period_s


def _between_s(record: _Record) -> list[float]:
    began_s = [each.began_s for each in record.occurrences]
    return [later - earlier for earlier, later in pairwise(began_s)]


def _period_s(record: _Record) -> float:
    between_s = _between_s(record)
    return median(between_s) if between_s else 0.0


def _forecast(key: RecurrenceKey, record: _Record, now_s: float) -> Forecast | None:
    began_s = [each.began_s for each in record.occurrences]
    if len(began_s) < _ENOUGH:
        return None
    period_s = record.period_s
    if not _is_regular(record):
        return None
    spread_s = median(abs(each - period_s) for each in _between_s(record))
    if now_s - began_s[-1] > max(_SILENT_MIN_S, _SILENT_PERIODS * period_s):
        return None
    # The last occurrence may be under way: use its beginning, but not its size.
    whole = list(record.occurrences)[:-1]
    # Measure phases relative to the last beginning, so that values near the period's end and start are not
    # averaged.
    late_s = [
        (each - began_s[-1]) - period_s * round((each - began_s[-1]) / period_s) for each in began_s[-_ENOUGH:]
    ]
    return Forecast(
        key,
        period_s,
        (began_s[-1] + median(late_s)) % period_s,
        spread_s,
        round(median(each.size for each in whole)),
        max(each.size for each in whole),
        median(each.touched_s - each.began_s for each in whole),
        record.total,
        began_s[-1],
    )
