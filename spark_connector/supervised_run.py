"""Find the run that a supervisor gives to a driver. A standby's driver waits for its run.

A standby has already made its session. While it waits, it warms the session (see `standby_warmth`). The agent's
answer is a file that appears whole; it ends the wait at once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from peacefs.client.control.addresses import split_uri
from peacefs.protocol.errors import BadRequest, QueryFailed
from peacefs.protocol.values.query_runs import GivenRun, without_run

from .standby_warmth import kept_warm
from .supervision.standby_letters import READY, STANDBY_VARIABLE, answer_to

# How often a standby's driver looks for its agent's answer.
standby_poll_s: Final = 0.02


def await_run(root: str, environment: Mapping[str, str]) -> GivenRun | None:
    """Return the run that a supervisor gave to this driver; None for another checkpoint, or without one.

    Raises QueryFailed if the agent's answer cannot be read.
    """
    location = environment.get("PEACEFS_CHECKPOINT", "")
    number = environment.get("PEACEFS_RUN", "")
    if not (location and number and _is_same_checkpoint(root, location)):
        return None
    letter = environment.get(STANDBY_VARIABLE)
    if letter is None:
        return GivenRun(number, without_run_of(location), location)
    return _await_letter(Path(letter), without_run_of(location))


def without_run_of(location: str) -> str:
    """Return the URI of a checkpoint's root, without the run."""
    address, path = split_uri(location)
    return address.webhdfs + without_run(path)


def _is_same_checkpoint(root: str, location: str) -> bool:
    try:
        asked, own = split_uri(root), split_uri(location)
    except BadRequest:
        return False
    return without_run(asked[1]).rstrip("/") == without_run(own[1]) and bool({*asked[0].each} & {*own[0].each})


def _await_letter(letter: Path, root: str) -> GivenRun:
    answer = answer_to(letter)
    try:
        letter.write_bytes(READY)
        with kept_warm(root):
            while True:
                with contextlib.suppress(FileNotFoundError):
                    return msgspec.json.decode(answer.read_bytes(), type=GivenRun)
                time.sleep(standby_poll_s)
    except (OSError, msgspec.DecodeError) as fault:
        raise QueryFailed(f"this standby cannot hear from its agent, by {letter}: {fault}") from None
