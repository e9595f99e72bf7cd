"""Run participants on a simulated disk, one effect at a time, in an order that a seed determines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from store.simulated_disk import SimulatedDisk

from peacefs.protocol.errors import PeacefsError
from peacefs.runtime import effects as fx

T = TypeVar("T")


class PowerLoss(BaseException):
    """The power failed before an effect; all participants ended there."""


@dataclass(eq=False)
class _Task:
    steps: fx.Steps[Any]
    #: Its last effect; None before its start.
    effect: fx.Effect | None = None
    #: Its result, or the error that it ended with.
    outcome: Any = None
    is_done: bool = False


class SeededDriver:
    """Runs participants. `lives` is the number of effects before the power fails; None for no failure.

    A wait times out only if no participant can continue.
    """

    def __init__(self, disk: SimulatedDisk, random: Random, lives: int | None = None) -> None:
        self.disk = disk
        self.lives = lives
        self.effects: list[fx.Effect] = []
        self._random = random

    def run(self, steps: fx.Steps[T]) -> T:
        """Run one participant; raise its exception."""
        (outcome,) = self.run_all([steps])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    def run_all(self, participants: Sequence[fx.Steps[Any]]) -> list[Any]:
        """Run all participants interleaved; return the result or the error of each."""
        tasks = [_Task(steps) for steps in participants]
        try:
            while open_tasks := [task for task in tasks if not task.is_done]:
                self._step(self._choose(open_tasks))
        except PowerLoss:
            for task in tasks:
                task.steps.close()
            raise
        return [task.outcome for task in tasks]

    def _choose(self, tasks: list[_Task]) -> _Task:
        """Choose a participant that can continue; if there is none, time out a wait."""
        ready = [task for task in tasks if not isinstance(task.effect, fx.Wait) or task.effect.ticket.fired]
        return self._random.choice(ready or tasks)

    def _step(self, task: _Task) -> None:
        """Perform a participant's effect, and resume it until its next effect."""
        result, fault = None, None
        try:
            result = self._perform(task.effect)
        except OSError as error:
            fault = error
        try:
            task.effect = task.steps.send(result) if fault is None else task.steps.throw(fault)
        except StopIteration as stop:
            task.outcome, task.is_done = stop.value, True
        except PeacefsError as error:
            task.outcome, task.is_done = error, True

    def _perform(self, effect: fx.Effect | None) -> Any:
        if effect is None:
            return None
        if isinstance(effect, fx.Wait):
            return effect.ticket.fired
        if isinstance(effect, fx.Sleep):
            return None
        if self.lives == 0:
            raise PowerLoss
        if self.lives is not None:
            self.lives -= 1
        self.effects.append(effect)
        return self.disk.perform(effect)
