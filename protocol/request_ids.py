"""Ids of wishes: what a repetition is known by."""

from __future__ import annotations

import os
import time


def new_request_id() -> str:
    """For one wish, however often it is repeated.

    Eighty random bits, after the milliseconds since 1970: what is wished for together lies together in the
    coordinator's index of answers, so that a commit changes one page of it and not one for each. Nothing else
    depends on that clock.
    """
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"
