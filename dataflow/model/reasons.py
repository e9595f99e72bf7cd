"""Describe an error of the user's code in one line."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import Final

_INSTALLED: Final = ("purelib", "platlib", "stdlib", "platstdlib")
_OURS = [Path(__file__).parents[1], Path(__file__).resolve().parents[1]]
#: Paths of code that the user has not written: this package, `peacefs.state`, the interpreter, and installed
#: packages.
_OTHERS: Final = tuple(
    str(each)
    for each in (*_OURS, *(ours.with_name("state") for ours in _OURS), *map(sysconfig.get_path, _INSTALLED))
)


def reason_of(error: BaseException) -> str:
    """Return the type and the text of an error in one line, with the line of the user's code that raised it."""
    said = " ".join(str(error).split())
    reason = f"{type(error).__name__}: {said}" if said else type(error).__name__
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        # Compiled modules have other file names, and frozen ones have none.
        theirs = frame.filename.startswith(_OTHERS) or "/site-packages/" in frame.filename
        if frame.filename.endswith(".py") and not theirs:
            return f"{reason} ({Path(frame.filename).name}, line {frame.lineno})"
    return reason
