"""The main program of a node that runs as a process.

It reads the import path of modules and its orders from standard input. It ends when standard input ends, so that
it does not outlive the program that started it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import cloudpickle


def run_as_ordered(run: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """Call `run` with the orders, and exit with the code that it returns."""
    # An agent sends SIGTERM to a program and all its nodes. The program may want last checkpoints from them.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Users' functions are in modules beside the program that started this one, whatever its working directory was.
    paths = cloudpickle.load(sys.stdin.buffer)
    sys.path += [path for path in paths if path not in sys.path]
    orders = cloudpickle.load(sys.stdin.buffer)

    async def until_input_ends() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def watch() -> None:
            sys.stdin.buffer.read()
            loop.call_soon_threadsafe(ended.set)

        # Not a thread of the event loop: the loop would wait for it if the node ends before its input does.
        threading.Thread(target=watch, name="standard input", daemon=True).start()
        node = asyncio.create_task(run(orders))
        orphaned = asyncio.create_task(ended.wait())
        done, _ = await asyncio.wait({node, orphaned}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    try:
        asyncio.run(until_input_ends())
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        # The thread that reads standard input would block an ordinary exit.
        os._exit(1)
    os._exit(0)
