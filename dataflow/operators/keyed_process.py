"""The user's own function with states and timers of each key.

Rows are given to the function in the order of arrival. A timer fires before the first row that brings event time
beyond it. Therefore the output does not depend on how rows are cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, TypeVar

import pyarrow as pa

from peacefs.dataflow.model.durations import Duration, microseconds
from peacefs.dataflow.model.operator import Operator, Rows
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.model.stream_type import StreamType, names_of
from peacefs.dataflow.unit_state.operator_state import OperatorState
from peacefs.protocol.errors import InvalidQuery

from .interface import OperatorSpecification
from .keyed_states import Declared, ListOf, ListState, MapOf, MapState, Value, ValueState, check_declared
from .keyed_store import CLOCK, EVENT, Key, KeyedStates, Timers
from .keys import check_keys, values_of_keys
from .row_operators import checked
from .row_times import EARLIEST_US, times_of

_EPOCH: Final = datetime(1970, 1, 1)
_US: Final = timedelta(microseconds=1)
DeclaredT = TypeVar("DeclaredT", Value, ListOf, MapOf)
Made = Iterable[Mapping[str, Any]] | None


class KeyedFunction:
    """A function with states and timers of each key. Override what is needed; each method returns rows as dicts.

    `states` declares what is kept of each key: `{"visits": Value("int64", default=0), "pages": ListOf("string")}`.
    `uses_clock` is True if it sets timers of the clock with `context.after`. It must depend on nothing else, and
    change nothing else: an instance is shared by all keys, and is not part of the state.
    """

    states: ClassVar[Mapping[str, Declared]] = {}
    uses_clock: ClassVar[bool] = False

    def on_row(self, key: Any, row: dict[str, Any], context: KeyedContext) -> Made:
        """Handle a row. `key`: the value of the key column, or a tuple if there are several."""

    def on_timer(self, key: Any, at: datetime, context: KeyedContext) -> Made:
        """Handle that event time has passed a timer."""

    def on_clock(self, key: Any, context: KeyedContext) -> Made:
        """Handle that the duration given to `context.after` has passed."""

    def on_end(self, key: Any, context: KeyedContext) -> Made:
        """Handle the end of the stream. Called for each key that has a state, after all timers of event time."""

    def described(self) -> tuple[tuple[str, str], ...]:
        """Return the names and the types of its states. Raises InvalidQuery if they are declared wrongly."""
        for name, declared in self.states.items():
            check_declared(name, declared)
        return tuple((name, str(declared)) for name, declared in self.states.items())

    def __str__(self) -> str:
        return type(self).__qualname__


@dataclass(frozen=True)
class ProcessByKey(OperatorSpecification):
    kind: ClassVar[str] = "process"
    judges_times: ClassVar[bool] = True
    bounds_causes = False
    keys: tuple[str, ...]
    function: KeyedFunction
    schema: pa.Schema
    time: str
    #: Names and types of states. A later version of the query may add some.
    states: tuple[tuple[str, str], ...] = field(metadata={"evolves": True})
    lateness_us: int | None = None

    @property
    def operator_class(self) -> OperatorClass:
        return OperatorClass.ARBITRARY if self.wants_time else OperatorClass.DETERMINISTIC

    @property
    def wants_time(self) -> bool:
        return self.function.uses_clock

    def output_type(self, inputs: Sequence[StreamType]) -> StreamType:
        check_keys(self.keys, inputs[0])
        return StreamType(self.schema, self.time)

    def start(self, inputs: Sequence[StreamType], state: OperatorState) -> Operator:
        return _ProcessByKey(self, inputs[0].time, state)


class KeyedContext:
    """What a keyed function can see and do besides its row: states and timers of the key, and times."""

    def __init__(self, of: ProcessByKey, states: KeyedStates, timers: Timers) -> None:
        self._of, self._states, self._timers = of, states, timers
        self._key: Key = ()
        self._now_us = self._watermark_us = EARLIEST_US
        self._clock_us = 0
        self._fired_us: int | None = None

    def value(self, name: str) -> ValueState:
        """Return a state of the current key that is declared as `Value`."""
        return ValueState(self._declared(name, Value), *self._place(name))

    def list(self, name: str) -> ListState:
        """Return a state of the current key that is declared as `ListOf`."""
        return ListState(self._declared(name, ListOf), *self._place(name))

    def map(self, name: str) -> MapState:
        """Return a state of the current key that is declared as `MapOf`."""
        return MapState(self._declared(name, MapOf), *self._place(name))

    @property
    def watermark(self) -> datetime | None:
        """The latest time of a row or timer so far, less the declared lateness; None before the first row."""
        return None if self._watermark_us <= EARLIEST_US // 2 else _EPOCH + self._watermark_us * _US

    def timer(self, at: datetime) -> None:
        """Call `on_timer` for the current key when event time has passed `at`."""
        at_us = _microseconds_of(at)
        if self._fired_us is not None and at_us <= self._fired_us:
            raise ValueError(
                f"a timer for {at} would fire again at once: it must be later than the one that sets it"
            )
        self._timers.set(self._key, EVENT, at_us)

    def cancel(self, at: datetime) -> None:
        """Remove a timer of the current key, if there is one for this time."""
        self._timers.cancel(self._key, EVENT, _microseconds_of(at))

    def after(self, duration: Duration) -> None:
        """Call `on_clock` for the current key when this much time has passed.

        The clock is the machine's. It goes on while the program is away, unless the machine is restarted.
        """
        if not self._of.function.uses_clock:
            raise ValueError(f"{self._of.function} sets a timer of the clock: say so with uses_clock = True")
        self._timers.set(self._key, CLOCK, self._clock_us + microseconds(duration, "after"))

    def _declared(self, name: str, form: type[DeclaredT]) -> DeclaredT:
        declared = self._of.function.states.get(name)
        if not isinstance(declared, form):
            raise KeyError(f"no state {name!r} is declared as {form.__name__}")
        return declared

    def _place(self, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
        key = self._key
        return (
            lambda: self._states.get(key, name, self._watermark_us),
            lambda value: self._states.put(key, name, value, self._now_us),
        )

    # -- for the operator ------------------------------------------------------------------------------------

    def enter(self, key: Key, now_us: int, *, fired_us: int | None = None) -> Any:
        """Make a key the current one, and return it as functions see it."""
        self._key, self._fired_us = key, fired_us
        self._now_us = max(now_us, self._watermark_us)
        return key[0] if len(key) == 1 else key

    def reach(self, watermark_us: int) -> int:
        """Advance the watermark, and return it. It never goes back."""
        self._watermark_us = max(self._watermark_us, watermark_us)
        return self._watermark_us

    def at_clock(self, clock_us: int) -> None:
        self._clock_us = clock_us


class _ProcessByKey(Operator):
    """The running operator: it gives rows and timers to the function, and makes batches of what it returns."""

    def __init__(self, of: ProcessByKey, time: str, state: OperatorState) -> None:
        self._of, self._function, self._time = of, of.function, time
        self._names = set(of.schema.names)
        self._states, self._timers = KeyedStates(state, of.function.states), Timers(state)
        self._context = KeyedContext(of, self._states, self._timers)
        # [latest time of a row, sum of the times that have passed, the last told time]
        self._progress = state.cell("progress", [EARLIEST_US, 0, None])
        latest, clock, _ = self._progress.get()
        self._context.reach(latest - (of.lateness_us or 0))
        self._context.at_clock(clock)

    def process(self, port: int, rows: Rows) -> Iterable[Rows]:
        latest, clock, told = self._progress.get()
        late_us = self._of.lateness_us or 0
        made: list[Mapping[str, Any]] = []
        times = times_of(rows, self._time).tolist()
        for key, time, row in zip(values_of_keys(rows, self._of.keys), times, rows.to_pylist(), strict=True):
            if time > latest:
                latest = time
                for at_us, timed in self._timers.due(EVENT, latest - late_us - 1):
                    made += self._call_timer(at_us, timed)
                self._context.reach(latest - late_us)
            made += self._function.on_row(self._context.enter(key, time), row, self._context) or ()
        self._states.expire(latest - late_us)
        self._progress.set([latest, clock, told])
        return self._finished(made)

    def on_time(self, now_us: int) -> Iterable[Rows]:
        latest, clock, told = self._progress.get()
        # The clock of another process may have begun anew.
        clock += max(0, now_us - told) if told is not None else 0
        self._progress.set([latest, clock, now_us])
        self._context.at_clock(clock)
        made: list[Mapping[str, Any]] = []
        for _, key in list(self._timers.due(CLOCK, clock)):
            made += self._function.on_clock(self._context.enter(key, latest), self._context) or ()
        return self._finished(made)

    def end(self, port: int) -> Iterable[Rows]:
        latest, _, _ = self._progress.get()
        made: list[Mapping[str, Any]] = []
        # Not those that are set meanwhile: a function may set one in each call.
        for at_us, key in self._timers.pending(EVENT):
            if self._timers.take(key, EVENT, at_us):
                made += self._call_timer(at_us, key)
        # Timers have advanced event time.
        self._states.expire(self._context.reach(latest - (self._of.lateness_us or 0)))
        for key in self._states.keys_now():
            made += self._function.on_end(self._context.enter(key, latest), self._context) or ()
        return self._finished(made)

    def _call_timer(self, at_us: int, key: Key) -> Iterable[Mapping[str, Any]]:
        self._context.reach(at_us)
        entered = self._context.enter(key, at_us, fired_us=at_us)
        return self._function.on_timer(entered, _EPOCH + at_us * _US, self._context) or ()

    def _finished(self, made: Sequence[Mapping[str, Any]]) -> Iterable[Rows]:
        self._states.flush()
        self._timers.flush()
        if not made:
            return ()
        for row in made:
            if not isinstance(row, Mapping) or row.keys() != self._names:
                raise TypeError(
                    f"{self._function} returned {row!r}: a dict with {names_of(self._of.schema.names)} is wanted"
                )
        rows = pa.RecordBatch.from_pylist(list(made), schema=self._of.schema)
        return (checked(rows, self._of.schema, self._of.time, type(self._function)),)


def _microseconds_of(at: datetime) -> int:
    if not isinstance(at, datetime) or at.tzinfo is not None:
        raise InvalidQuery(f"a timer is for a datetime without a zone, and not for {at!r}")
    return (at - _EPOCH) // _US
