"""Show a demo's progress: steps as lines, and a progress bar beneath them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class DemoScreen:
    """The screen of a demo. `unit` names what the bar counts; `total` is None until known.

    The subjects of steps are padded to `subject_width` columns.
    """

    def __init__(self, console: Console, unit: str, *, total: int | None = None, subject_width: int) -> None:
        self._console = console
        self._subject_width = subject_width
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._counted = self._bar.add_task(unit, total=total)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        with self._bar:
            yield

    def step(self, subject: str, what: str) -> None:
        """Print one line. An empty subject continues the previous step."""
        self._console.print(f"{subject:{self._subject_width}} {what}", soft_wrap=True)

    def detail(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._console.print(f"    {line}", style="dim", no_wrap=True, overflow="ellipsis")

    def done(self, count: int, total: int | None = None) -> None:
        """Move the bar to `count`, and raise a `total` that is below it."""
        self._bar.update(self._counted, completed=count, total=None if total is None else max(count, total))
