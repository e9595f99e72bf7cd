"""Progress bars on stderr for transfers, steps and runs. They show nothing if stderr is not a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


class TransferProgress:
    """Receives the progress of a transfer. This base class shows nothing."""

    #: True if it is worthwhile to determine the total size first.
    shown = False

    def expect(self, size: int) -> None:
        """Add `size` to the total."""

    def name(self, name: str) -> None: ...

    def advance(self, size: int) -> None:
        """Count `size` more bytes as transferred."""

    def reach(self, done: int, total: int) -> None:
        """Set the number of bytes transferred and the total."""


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
    """Show bytes and rate while the block runs."""
    if not sys.stderr.isatty():
        yield TransferProgress()
        return
    # This import costs 30 ms, which commands in scripts avoid.
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
    """Receives the progress of steps of about equal length. This base class shows nothing."""

    def expect(self, steps: int) -> None:
        """Set the total number of steps."""

    def step(self, name: str) -> None:
        """Begin a step; the previous one is done."""


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
    """Show the current step and the remaining time."""
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
    """Count runs of about equal length. Yields the function to call after each run."""
    with step_progress() as progress:
        progress.expect(runs)
        progress.step(name)
        yield lambda: progress.step(name)
