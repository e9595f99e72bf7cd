"""The errors that msgspec raises for bytes from outside that are malformed."""

from __future__ import annotations

from typing import Final

import msgspec

#: Not of the type or shape; text that is no UTF-8; nested so deeply that it cannot even be passed over.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
