"""Modes with the syntax of `chmod`: octal, or symbolic such as u+rwx,g-w,o=r,+t."""

from __future__ import annotations

import re

from peacefs.protocol.errors import BadRequest

_OCTAL = re.compile("[01]?[0-7]{3}")
_CLAUSE = re.compile("([ugoa]*)([+=-])([rwxXt]*)")
_SHIFTS = {"u": (6,), "g": (3,), "o": (0,), "a": (6, 3, 0)}
_BITS = {"r": 4, "w": 2, "x": 1}
_STICKY = 0o1000
_ANY_EXECUTE = 0o111


def changed_mode(text: str, mode: int, is_directory: bool) -> int:
    """Apply a change to a mode. Raises BadRequest if `text` is not a mode."""
    if _OCTAL.fullmatch(text):
        return int(text, 8)
    for clause in text.split(","):
        parsed = _CLAUSE.fullmatch(clause)
        if parsed is None:
            raise BadRequest(f"{text!r} is no mode: 750 or u=rwx,g=rx are")
        who, operator, letters = parsed.groups()
        mode = _apply(mode, who, operator, letters, is_directory)
    return mode


def _apply(mode: int, who: str, operator: str, letters: str, is_directory: bool) -> int:
    """Apply one clause. X sets x on directories and on executable files; t is always the sticky bit."""
    if "X" in letters and (is_directory or mode & _ANY_EXECUTE):
        letters += "x"
    bits = sum(_BITS[letter] for letter in set(letters) & set(_BITS))
    shifts = {shift for letter in who or "a" for shift in _SHIFTS[letter]}
    change = sum(bits << shift for shift in shifts) | (_STICKY if "t" in letters else 0)
    if operator == "+":
        return mode | change
    if operator == "-":
        return mode & ~change
    return mode & ~sum(7 << shift for shift in shifts) | change
