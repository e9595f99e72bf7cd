"""A driver that runs many participants on one thread, which waits for all their connections with epoll.

With one thread per connection, each system call releases the interpreter lock. Writing small chunks consists
mostly of system calls, so getting the lock back dominates their cost. The reactor's thread instead runs one
participant after another, each until it must wait. Worker threads do what would delay the others: bulk data,
connecting, and a slow disk.

If the disk was fast recently, the reactor's thread writes and syncs itself; requests that arrive meanwhile form
the next batch. If it was slow, a worker does so and then hands the participant back (`disk_turns`). If the
reactor's thread hangs for `reactor_stuck_s`, a new thread takes over and the hanging one continues as a worker. A
participant whose peer sends faster than it is served must let others run in between. The reactor's thread reads
files itself only if they are open and in the page cache.

A participant either waits or runs on exactly one thread; the lock is held while that changes. A participant that
moves much data keeps its worker, blocking calls and large buffers until the end of the request.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import inf
from typing import Any, Final

from peacefs.protocol.errors import PeacefsError, PeerTimeout
from peacefs.protocol.frames import Frame
from peacefs.protocol.limits import begun_frame_timeout_s
from peacefs.protocol.trace_context import current, stamped, switch_to

from . import effects as fx
from .connections import SocketConnection
from .disk_turns import DiskTurns
from .running_participants import Begun, RunningParticipant, Synced, nobody_hears, report_bug
from .thread_driver import ThreadDriver

# If the reactor's thread hangs for `reactor_stuck_s`, another thread replaces it.
reactor_stuck_s: Final = 1.0
# A participant that has run for this long without waiting, because its peer keeps sending, lets others run.
reactor_turn_s: Final = 0.01

log = logging.getLogger("peacefs.reactor")
#: Returned instead of a result: the participant waits, or another thread continues it.
_LATER: Final = object()
#: A participant that yields one of these moves much data.
_BULK = (fx.ReadAt, fx.SendFile)
#: Effects that never wait.
_AT_ONCE = (fx.Now, fx.WallClock, fx.Release, fx.ReadFromMemory)
_EVENTS = {fx.Receive: select.EPOLLIN, fx.ReceiveFrames: select.EPOLLIN, fx.Send: select.EPOLLOUT}
_Performer = Callable[[RunningParticipant, Any], Any]


def _at_once(perform: Callable[[Any], Any]) -> _Performer:
    return lambda _run, effect: perform(effect)


class Reactor:
    """Runs the participants of a datanode's data server, from `start` to `stop`. Thread-safe.

    Each participant runs on at most one thread at a time, and only the reactor's thread must not block.
    """

    def __init__(self, driver: ThreadDriver, name: str, *, workers_max: int) -> None:
        """`driver` performs blocking effects, on up to `workers_max` threads."""
        self._driver = driver
        self._workers = ThreadPoolExecutor(workers_max, thread_name_prefix=f"{name}-worker")
        self._thread = self._new_thread(name)
        #: The id of the reactor's thread; None until it runs.
        self._here: int | None = None
        self._watch = threading.Thread(target=self._keep_watch, name=f"{name}-watch", daemon=True)
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._lock = threading.Lock()
        self._armed: dict[int, RunningParticipant] = {}
        self._ready: deque[int] = deque()
        self._fired: deque[tuple[RunningParticipant, fx.Effect]] = deque()
        #: Participants that could go on but let others run first.
        self._yielded: deque[tuple[RunningParticipant, fx.Effect]] = deque()
        self._timers: list[tuple[float, int, RunningParticipant]] = []
        self._numbers = itertools.count()
        self._is_asleep = False
        self._sleeps_until_s = inf
        self._disk_turns = DiskTurns()
        #: The time when the reactor's thread began its current step.
        self._busy_since_s = inf
        self._stopping = threading.Event()
        self._performers: dict[type[fx.Effect], _Performer] = {
            fx.Connect: self._connect,
            fx.Send: self._send,
            fx.SendFrames: self._send_frames,
            fx.Receive: self._receive_or_begin,
            fx.ReceiveFrames: self._receive_several,
            fx.Close: self._close,
            fx.Spawn: self._spawn,
            fx.Wait: self._wait,
            fx.Sleep: self._sleep,
            fx.ReadPart: self._read_part,
            Begun: _at_once(lambda effect: None),
            Synced: self._synced,
            **dict.fromkeys((fx.AppendToFile, fx.Sync), self._on_disk),
            **{kind: _at_once(driver.performer(kind)) for kind in _AT_ONCE},
        }

    def start(self) -> None:
        self._thread.start()
        self._watch.start()

    def run(self, steps: fx.Steps[None], ended: Callable[[Exception | None], None]) -> None:
        """Start a participant on the calling thread, which may block.

        `ended` is called on any thread when it ends, with its exception or None.
        """
        run = RunningParticipant(steps, ended)
        self._resume(run, partial(next, steps))

    def begin(self, steps: fx.Steps[None], ended: Callable[[Exception | None], None]) -> None:
        """Start a participant on the reactor's thread, in the trace context of the caller."""
        self._hand_back(RunningParticipant(steps, ended, context=current()), Begun())

    def stop(self) -> None:
        """Stop all threads, after the last participant has ended. May be called twice, or without `start`."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._watch.ident is not None:
            self._watch.join()
            os.eventfd_write(self._bell, 1)
            self._thread.join()
        self._workers.shutdown()
        self._epoll.close()
        os.close(self._bell)

    # -- going on ----------------------------------------------------------------------------------

    def _resume(self, run: RunningParticipant, step: Callable[[], fx.Effect]) -> None:
        """Run one step of a participant, and continue with the effect that it yields."""
        self._go_on(run, None, step)

    def _go_on(
        self, run: RunningParticipant, effect: fx.Effect | None, step: Callable[[], fx.Effect] | None = None
    ) -> None:
        """Perform `effect`, or the one that `step` returns, and all further ones until the participant waits."""
        steps, performers = run.steps, self._performers
        switch_to(run.context if run.request is None else run.request.context)
        try:
            if step is not None:
                effect = step()
            assert effect is not None
            while True:
                perform: _Performer = performers.get(type(effect), self._by_worker)
                try:
                    result = perform(run, effect)
                except (PeacefsError, OSError) as fault:
                    effect = steps.throw(fault)
                else:
                    if result is _LATER:
                        return
                    effect = steps.send(result)
        except StopIteration:
            self._end(run, None)
        except Exception as error:
            self._end(run, error)

    def _end(self, run: RunningParticipant, fault: Exception | None) -> None:
        run.end_request()
        # A timer may refer to the run for minutes, so drop what the run refers to.
        ended, run.ended, run.effect, run.unsent = run.ended, nobody_hears, None, None
        ended(fault)

    def _time_out(self, run: RunningParticipant, effect: fx.Effect) -> None:
        if not isinstance(effect, fx.Receive | fx.Send):
            result = effect.ticket.fired if isinstance(effect, fx.Wait) else None
            self._resume(run, partial(run.steps.send, result))
            return
        did = "said" if isinstance(effect, fx.Receive) else "took"
        fault = PeerTimeout(f"{effect.connection.peer} {did} nothing for {effect.timeout_s:g} s")
        run.unsent = None
        self._resume(run, partial(run.steps.throw, fault))

    # -- effects -----------------------------------------------------------------------------------

    def _by_worker(self, run: RunningParticipant, effect: fx.Effect) -> Any:
        if isinstance(effect, _BULK):
            run.keeps_worker = True
        if not self._is_here():
            return self._driver.perform(effect)
        self._workers.submit(self._go_on, run, effect)
        return _LATER

    def _read_part(self, run: RunningParticipant, effect: fx.ReadPart) -> Any:
        """Read on this thread if the file is open and in the page cache; else in a worker."""
        data = self._driver.kept_files.read_from_memory(effect.path, effect.offset, effect.length)
        return data if data is not None else self._by_worker(run, effect)

    def _on_disk(self, run: RunningParticipant, effect: fx.Effect) -> Any:
        turns, is_sync = self._disk_turns, isinstance(effect, fx.Sync)
        if self._is_here() and (run.keeps_worker or turns.belongs_to_worker()):
            return self._by_worker(run, effect)
        if is_sync:
            turns.syncs()
        fault, began_s = None, time.monotonic()
        try:
            self._driver.perform(effect)
        except OSError as error:
            fault = error
        turns.took(time.monotonic() - began_s)
        if is_sync and not run.keeps_worker and not self._is_here():
            # Continue on the reactor's thread: two running threads would compete for the interpreter lock.
            return self._hand_back(run, Synced(fault))
        if fault is not None:
            raise fault
        return None

    def _hand_back(self, run: RunningParticipant, effect: Begun | Synced) -> Any:
        self._park(run, effect, inf)
        self._fire(run, effect)
        return _LATER

    def _synced(self, _run: RunningParticipant, effect: Synced) -> None:
        if effect.fault is not None:
            raise effect.fault

    def _is_here(self) -> bool:
        """Return whether the caller runs on the reactor's thread, which must not block."""
        return threading.get_ident() == self._here

    def _connect(self, run: RunningParticipant, effect: fx.Connect) -> Any:
        kept = self._driver.pool.kept(effect.address, effect.name)
        return kept if kept is not None else self._by_worker(run, effect)

    def _receive_or_begin(self, run: RunningParticipant, effect: fx.Receive) -> Any:
        if not effect.begins_request:
            return self._receive(run, effect)
        run.end_request()
        frame = self._receive(run, effect)
        if frame is not _LATER:
            self._disk_turns.arrived(1)
            run.begin_request(frame.message)
        return frame

    def _receive_several(self, run: RunningParticipant, effect: fx.ReceiveFrames) -> Any:
        """Receive a frame, and those that have arrived after it.

        A last frame for which `more_after` is False is a request that is served by itself, in its own context.
        """
        if effect.begins_request:
            run.end_request()
        frames = self._receive(run, effect)
        if frames is _LATER:
            return _LATER
        if isinstance(frames, Frame):
            assert isinstance(effect.connection, SocketConnection)
            frames = effect.connection.frames_after(frames, effect.more_after)
        if effect.begins_request:
            self._disk_turns.arrived(len(frames))
            if not effect.more_after(frames[-1]):
                run.begin_request(frames[-1].message)
        return frames

    def _receive(self, run: RunningParticipant, effect: fx.Receive) -> Any:
        connection = effect.connection
        assert isinstance(connection, SocketConnection)
        if effect.begins_request:
            run.keeps_worker = False
        elif run.keeps_worker:
            return self._by_worker(run, effect)
        if effect.begins_request and run.effect is not effect and not connection.has_bytes_ahead:
            # The peer sends its next request only after it has received this answer, so wait at once.
            connection.rest()
            return self._park(run, effect, effect.timeout_s, connection)
        if self._is_here() and time.monotonic() - self._busy_since_s > reactor_turn_s:
            return self._yield(run, effect)
        frame = connection.receive_now()
        if frame is not None:
            return frame
        if effect.begins_request and connection.has_bytes_ahead and effect.timeout_s > begun_frame_timeout_s:
            # An idle connection may wait for long, but a request that has begun has a shorter deadline.
            effect.timeout_s = begun_frame_timeout_s
            run.effect = None
        if connection.is_large_ahead:
            run.keeps_worker = True
            return self._by_worker(run, effect)
        return self._park(run, effect, effect.timeout_s, connection)

    def _send(self, run: RunningParticipant, effect: fx.Send) -> Any:
        connection = effect.connection
        assert isinstance(connection, SocketConnection)
        if run.keeps_worker:
            return self._by_worker(run, effect)
        unsent, run.unsent = run.unsent, None
        if unsent is None:
            unsent = connection.send_now(stamped(effect.message), effect.payload)
        else:
            unsent = connection.send_rest_now(unsent)
        if not unsent:
            return None
        run.unsent = unsent
        return self._park(run, effect, effect.timeout_s, connection)

    def _send_frames(self, run: RunningParticipant, effect: fx.SendFrames) -> Any:
        connection = effect.connection
        assert isinstance(connection, SocketConnection)
        if run.keeps_worker:
            return self._by_worker(run, effect)
        rest, run.unsent = run.unsent, None
        if rest is not None:
            connection.send_rest(rest, effect.timeout_s)
        elif rest := connection.send_frames_now(effect.frames):
            # A worker sends the rest with blocking calls. This connection cannot be polled for it, because another
            # participant may already wait for it to become readable.
            run.unsent = rest
            self._workers.submit(self._go_on, run, effect)
            return _LATER
        return None

    def _close(self, run: RunningParticipant, effect: fx.Close) -> None:
        """Close a connection, and wake the participant that waits for its next event, if there is one."""
        connection = effect.connection
        assert isinstance(connection, SocketConnection)
        with self._lock:
            other = self._armed.pop(connection.fileno(), None)
        self._driver.perform(effect)
        if other is not None and other is not run and (waited := other.effect) is not None:
            self._fire(other, waited)

    def _spawn(self, _run: RunningParticipant, effect: fx.Spawn) -> None:
        self._hand_back(RunningParticipant(effect.steps, report_bug), Begun())

    def _wait(self, run: RunningParticipant, effect: fx.Wait) -> Any:
        if effect.ticket.fired:
            return True
        self._park(run, effect, effect.timeout_s)
        effect.ticket.when_fired(lambda: self._fire(run, effect))
        return _LATER

    def _sleep(self, run: RunningParticipant, effect: fx.Sleep) -> Any:
        if effect.seconds == 0 and not (self._ready or self._fired):
            return None
        return self._park(run, effect, effect.seconds)

    # -- waiting -----------------------------------------------------------------------------------

    def _park(
        self,
        run: RunningParticipant,
        effect: fx.Effect,
        timeout_s: float,
        connection: SocketConnection | None = None,
    ) -> Any:
        """Let the participant wait for `effect`. If it waited for the same effect before, its deadline stays."""
        with self._lock:
            if run.effect is not effect:
                run.effect, run.deadline_s = effect, time.monotonic() + timeout_s
            run.waits = True
            if run.deadline_s < run.looked_at_s:
                self._look_at(run)
            if connection is not None:
                self._arm(run, connection, _EVENTS[type(effect)])
        return _LATER

    def _yield(self, run: RunningParticipant, effect: fx.Receive) -> Any:
        """Let all participants that are ready run first."""
        self._park(run, effect, effect.timeout_s)
        self._yielded.append((run, effect))
        self._ring()
        return _LATER

    def _look_at(self, run: RunningParticipant) -> None:
        run.looked_at_s = run.deadline_s
        heapq.heappush(self._timers, (run.deadline_s, next(self._numbers), run))
        if run.deadline_s < self._sleeps_until_s:
            self._ring()

    def _arm(self, run: RunningParticipant, connection: SocketConnection, events: int) -> None:
        descriptor = connection.fileno()
        self._armed[descriptor] = run
        # One event only: between waits, a worker may use the connection with blocking calls.
        events |= select.EPOLLONESHOT
        if connection.is_polled:
            self._epoll.modify(descriptor, events)
        else:
            self._epoll.register(descriptor, events)
            connection.is_polled = True

    def _fire(self, run: RunningParticipant, effect: fx.Effect) -> None:
        self._fired.append((run, effect))
        self._ring()

    def _ring(self) -> None:
        if self._is_asleep:
            self._is_asleep = False
            os.eventfd_write(self._bell, 1)

    # -- the reactor's thread ----------------------------------------------------------------------

    def _new_thread(self, name: str) -> threading.Thread:
        return threading.Thread(target=self._serve, name=name, daemon=True)

    def _serve(self) -> None:
        with self._lock:
            if threading.current_thread() is not self._thread:
                return
            self._here = threading.get_ident()
        while not self._stopping.is_set():
            with self._lock:
                if not self._is_here():
                    return
                step = self._next_step()
                self._busy_since_s = time.monotonic()
            step()

    def _next_step(self) -> Callable[[], None]:
        """Take the next step to run. Called with the lock, so that a replacing thread does not get the same."""
        while self._ready:
            descriptor = self._ready.popleft()
            if descriptor == self._bell:
                os.eventfd_read(self._bell)
                continue
            run = self._armed.pop(descriptor, None)
            if run is not None and run.waits and run.effect is not None:
                return self._woken(run, run.effect)
        while self._fired:
            run, effect = self._fired.popleft()
            if run.waits and run.effect is effect:
                return self._woken(run, effect)
        if (overdue := self._next_overdue(time.monotonic())) is not None:
            return overdue
        return self._poll

    def _woken(self, run: RunningParticipant, effect: fx.Effect) -> Callable[[], None]:
        run.waits = False
        return partial(self._go_on, run, effect)

    def _next_overdue(self, now_s: float) -> Callable[[], None] | None:
        while self._timers and self._timers[0][0] <= now_s:
            looked_at_s, _number, run = heapq.heappop(self._timers)
            if looked_at_s != run.looked_at_s:
                continue
            run.looked_at_s = inf
            if not run.waits:
                continue
            if run.deadline_s > now_s:
                if run.deadline_s < inf:
                    self._look_at(run)
                continue
            return self._overdue(run)
        return None

    def _overdue(self, run: RunningParticipant) -> Callable[[], None]:
        effect = run.effect
        assert effect is not None
        run.waits = False
        if isinstance(effect, fx.Receive | fx.Send):
            assert isinstance(effect.connection, SocketConnection)
            self._armed.pop(effect.connection.fileno(), None)
        return partial(self._time_out, run, effect)

    def _keep_watch(self) -> None:
        """Replace the reactor's thread if it hangs, most likely in a disk operation.

        Also closes kept files that are too old.
        """
        while not self._stopping.wait(reactor_stuck_s / 2):
            self._driver.kept_files.forget_old()
            with self._lock:
                is_stuck = time.monotonic() - self._busy_since_s > reactor_stuck_s
                if is_stuck:
                    self._busy_since_s = inf
                    self._disk_turns.hangs(reactor_stuck_s)
                    self._thread, self._here = self._new_thread(self._thread.name), None
            if is_stuck:
                log.warning(
                    "a thread has been stuck for %g s, most likely in the disk: continuing without it",
                    reactor_stuck_s,
                )
                self._thread.start()

    def _poll(self) -> None:
        with self._lock:
            if not self._is_here():
                # This thread was replaced; events polled here would be lost to the new thread.
                return
            self._busy_since_s = inf
            self._sleeps_until_s = self._timers[0][0] if self._timers else inf
            self._is_asleep = True
        timeout_s = None if self._sleeps_until_s == inf else max(0.0, self._sleeps_until_s - time.monotonic())
        found = self._epoll.poll(0.0 if self._fired or self._yielded else timeout_s)
        self._is_asleep = False
        self._ready.extend([descriptor for descriptor, _events in found])
        for _ in range(len(self._yielded)):
            self._fired.append(self._yielded.popleft())
