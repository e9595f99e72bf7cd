"""Walks trees that are deeper than Python's stack allows.

A step into a directory is a generator that yields the steps into its subdirectories. It is written like a
recursive function: an exception of a deeper step is raised where that step was yielded.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias

Descent: TypeAlias = "Generator[Descent, None, None]"


def descend(top: Descent) -> None:
    """Run a step and the steps that it yields, depth first, without recursion."""
    steps: list[Descent] = [top]
    fault: BaseException | None = None
    while steps:
        try:
            deeper = next(steps[-1]) if fault is None else steps[-1].throw(fault)
        except StopIteration:
            steps.pop()
            fault = None
        except BaseException as raised:
            steps.pop()
            fault = raised
        else:
            steps.append(deeper)
            fault = None
    if fault is not None:
        raise fault
