"""Runs participants over a simulated disk, one effect at a time in an order that a seed decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from store.simulated_disk import SimulatedDisk

from peacefs.protocol import effects as fx
from peacefs.protocol.errors import PeacefsError

T = TypeVar("T")


class PowerLoss(BaseException):
    """The machine went off before an effect; every participant ended there."""


@dataclass(eq=False)
class _Task:
    steps: fx.Steps[Any]
    result: Any = None
    fault: Exception | None = None
    waits_for: fx.Ticket | None = None
    is_done: bool = False


class SeededDriver:
    """`lives` is how many effects are performed before the power fails; None for a machine that stays on.

    A wait times out only when nobody else can go on.
    """

    def __init__(self, disk: SimulatedDisk, random: Random, lives: int | None = None) -> None:
        self.disk = disk
        self.lives = lives
        self.effects: list[fx.Effect] = []
        self._random = random

    def run(self, steps: fx.Steps[T]) -> T:
        """One participant alone; what it raises comes out here."""
        (outcome,) = self.run_all([steps])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    def run_all(self, participants: Sequence[fx.Steps[Any]]) -> list[Any]:
        """All of them, interleaved; the result or the error of each."""
        tasks = [_Task(steps) for steps in participants]
        try:
            while open_tasks := [task for task in tasks if not task.is_done]:
                self._step(self._choose(open_tasks))
        except PowerLoss:
            for task in tasks:
                task.steps.close()
            raise
        return [task.fault or task.result for task in tasks]

    def _choose(self, tasks: list[_Task]) -> _Task:
        ready = [task for task in tasks if task.waits_for is None or task.waits_for.fired]
        task = self._random.choice(ready or tasks)
        if task.waits_for is not None:
            task.result = task.waits_for.fired
            task.waits_for = None
        return task

    def _step(self, task: _Task) -> None:
        fault, task.fault = task.fault, None
        try:
            effect = task.steps.send(task.result) if fault is None else task.steps.throw(fault)
        except StopIteration as stop:
            task.result, task.is_done = stop.value, True
            return
        except PeacefsError as error:
            task.fault, task.is_done = error, True
            return
        self._perform(task, effect)

    def _perform(self, task: _Task, effect: fx.Effect) -> None:
        task.result = None
        if isinstance(effect, fx.Wait):
            task.waits_for = effect.ticket
            return
        if self.lives == 0:
            raise PowerLoss
        if self.lives is not None:
            self.lives -= 1
        self.effects.append(effect)
        try:
            task.result = self.disk.perform(effect)
        except OSError as error:
            task.fault = error
