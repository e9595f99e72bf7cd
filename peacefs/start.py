"""The entry point of the command `peacefs`: handle signals before importing anything slow.

SIGTERM, which `kill`, `timeout` and service managers send, is treated like Ctrl-C: unfinished work is undone, and
no traceback is shown. Services install their own handlers once they serve.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 128 + signal.SIGINT
_TERMINATED = 128 + signal.SIGTERM


def main() -> None:
    """Run the command.

    Exit status: 0; 1 for faults, 2 for wrong usage, 130 after Ctrl-C, 141 after SIGPIPE, 143 after SIGTERM.
    """
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
    # CPython kills itself with SIGINT at exit if a KeyboardInterrupt ever left code compiled from text, such as
    # the code of named tuples, which imports run. Running such code to its end resets that.
    exec("")
    sys.exit(_TERMINATED if terminated else status)
