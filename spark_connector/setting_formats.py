"""Print the settings for `spark-defaults.conf`, for `spark-submit`, or as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

import msgspec

from .query_settings import Setting
from .session import ANY_SPARK


def _defaults(table: Sequence[Setting]) -> str:
    """Return lines of a spark-defaults.conf, each with its reason as a comment above it."""
    return "\n".join(f"# {setting.reason}{_since(setting)}\n{setting.key} {setting.value}" for setting in table)


def _since(setting: Setting) -> str:
    return "" if setting.since == ANY_SPARK else f" (Spark {setting.since})"


def _submit(table: Sequence[Setting]) -> str:
    """Return `--conf` arguments for a shell, one per line."""
    return " \\\n".join(f"--conf {shlex.quote(f'{setting.key}={setting.value}')}" for setting in table)


def _json(table: Sequence[Setting]) -> str:
    return "\n".join(msgspec.json.encode(asdict(setting)).decode() for setting in table)


#: The formats in which `peacefs spark conf --format` prints the table.
FORMATS: Final[Mapping[str, Callable[[Sequence[Setting]], str]]] = {
    "defaults": _defaults,
    "submit": _submit,
    "json": _json,
}
