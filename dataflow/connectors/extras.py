"""Import what a connector needs, or say how to install it."""

from __future__ import annotations

import importlib
from typing import Any

from peacefs.protocol.errors import StartupError


def needed(module: str, extra: str) -> Any:
    """Import a module of an extra. Raises StartupError if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is not None and not module.startswith(error.name.partition(".")[0]):
            raise
        raise StartupError(f"{module} is not installed: pip install 'peacefs[{extra}]'") from None
