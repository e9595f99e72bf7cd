"""The errors that msgspec raises for malformed input."""

from __future__ import annotations

from typing import Final

import msgspec

#: Wrong type or shape; text that is not UTF-8; nested too deeply to parse.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
