"""What all bodies of REST requests have in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Body(BaseModel):
    """JSON can spell text that no UTF-8 expresses, halves of surrogate pairs: it is refused here for all.

    Text is no number and 1 is not true, as in the bodies that are messages of the framed protocol.
    """

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _is_unicode(cls, told: Any) -> Any:
        if isinstance(told, dict) and not all(map(_is_text, told.values())):
            raise ValueError("text that is no Unicode")
        return told


def _is_text(value: Any) -> bool:
    """Of texts, and of lists of them."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
    elif isinstance(value, list):
        return all(map(_is_text, value))
    return True
