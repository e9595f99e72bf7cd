"""The entry point of the command `peacefs`: handle signals before importing anything slow.

SIGTERM, which is what `kill`, `timeout` and service managers send, is treated as Ctrl-C is: what is half done is
taken back, and nobody sees a traceback. Services have handlers of their own as soon as they serve.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 128 + signal.SIGINT
_TERMINATED = 128 + signal.SIGTERM


def main() -> None:
    """Exit status 0, 1 for faults, 2 for wrong usage, 130 after Ctrl-C, 141 when who reads what it prints has
    gone, 143 after SIGTERM."""
    terminated = False

    def terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, terminate)
        from peacefs.command import main as command

        command()
    except KeyboardInterrupt:
        status = _INTERRUPTED
    except SystemExit as end:
        if end.code != _INTERRUPTED:
            raise
        status = _INTERRUPTED
    else:
        return
    # CPython dies of SIGINT at its end if a KeyboardInterrupt has ever left code that was compiled from text, as
    # that of named tuples is, which are made during imports. Such code that ends well makes it forget.
    exec("")
    sys.exit(_TERMINATED if terminated else status)
