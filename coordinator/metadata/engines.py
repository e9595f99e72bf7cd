"""The storage engine that coordinators use. Imported by the service and by commands that look after its files."""

from __future__ import annotations

from typing import Final

from .engine import Engine
from .sqlite.engine import SqliteEngine

ENGINE: Final[Engine] = SqliteEngine()
