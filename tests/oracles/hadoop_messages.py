"""Field numbers, labels and types of HDFS's messages, as the descriptors in the jars of Hadoop 3.5.0 have them.

A field is told as `label type default`, by its number. Names of fields cross no wire, and are not told.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

_RECORDED = Path(__file__).with_suffix(".json")


@cache
def _recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_RECORDED.read_text())
    return found


def fields_of(message: str) -> dict[int, str]:
    """Return the fields of a message; a nested one is named `Outer.Inner`. Raises KeyError."""
    return {int(number): told for number, told in _recorded()["messages"][message].items()}


def values_of(enumeration: str) -> dict[str, int]:
    """Return the names and numbers of an enumeration. Raises KeyError."""
    found: dict[str, int] = _recorded()["enums"][enumeration]
    return found
