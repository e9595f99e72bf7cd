"""Progress bars on stderr for transfers, steps and runs. Show nothing if stderr is no terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


class TransferProgress:
    """Receives the progress of a transfer. This one shows nothing."""

    #: True if it is worth finding out beforehand how much there is.
    shown = False

    def expect(self, size: int) -> None:
        """Expect so many bytes more."""

    def name(self, name: str) -> None:
        """Name the file that is being transferred now."""

    def advance(self, size: int) -> None:
        """Count so many bytes as transferred."""

    def reach(self, done: int, total: int) -> None:
        """So many bytes have been transferred by now, of so many in all."""


class _Bar(TransferProgress):
    shown = True

    def __init__(self, update: Callable[..., None], expected: int = 0) -> None:
        self._update = update
        self._expected = expected

    def expect(self, size: int) -> None:
        self._expected += size
        self._update(total=self._expected)

    def name(self, name: str) -> None:
        self._update(description=name)

    def advance(self, size: int) -> None:
        self._update(advance=size)

    def reach(self, done: int, total: int) -> None:
        self._update(completed=done, total=total)


@contextlib.contextmanager
def transfer_progress() -> Iterator[TransferProgress]:
    """Shows bytes and rate while the block runs."""
    if not sys.stderr.isatty():
        yield TransferProgress()
        return
    # Costs 30 ms, which a command in a script need not pay.
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None)

        def update(
            *,
            description: str | None = None,
            total: int | None = None,
            advance: int | None = None,
            completed: int | None = None,
        ) -> None:
            shown = None if description is None else escape(description)
            progress.update(task, description=shown, total=total, advance=advance, completed=completed)

        yield _Bar(update)


class StepProgress:
    """Receives the progress of work in steps of about the same length. This one shows nothing."""

    def expect(self, steps: int) -> None:
        """There will be so many in all."""

    def step(self, name: str) -> None:
        """The one before is done, and this one begins."""


class _StepBar(StepProgress):
    def __init__(self, update: Callable[..., None]) -> None:
        self._update = update
        self._begun = 0

    def expect(self, steps: int) -> None:
        self._update(total=steps)

    def step(self, name: str) -> None:
        self._update(description=name, completed=self._begun)
        self._begun += 1


@contextlib.contextmanager
def step_progress() -> Iterator[StepProgress]:
    """Shows the step that is under way, and how long the rest will take."""
    if not sys.stderr.isatty():
        yield StepProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None)

        def update(
            *, description: str | None = None, total: int | None = None, completed: int | None = None
        ) -> None:
            progress.update(task, description=description, total=total, completed=completed)

        yield _StepBar(update)


@contextlib.contextmanager
def run_progress(name: str, runs: int) -> Iterator[Callable[[], None]]:
    """Count runs of about the same length. Yields the function to call at the end of each run."""
    with step_progress() as progress:
        progress.expect(runs)
        progress.step(name)
        yield lambda: progress.step(name)
