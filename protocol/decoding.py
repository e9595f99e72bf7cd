"""What msgspec raises for bytes that came from outside and are not what they should be."""

from __future__ import annotations

from typing import Final

import msgspec

#: Not of the type or shape; text that is no UTF-8; nested so deeply that it cannot even be passed over.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
