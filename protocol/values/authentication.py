"""The ways in which callers of a cluster authenticate."""

from __future__ import annotations

from enum import StrEnum


class AuthenticationMode(StrEnum):
    """As `--authentication` names it."""

    #: They do not: names are believed, as in Hadoop's simple authentication.
    SIMPLE = "simple"
    TOKEN = "token"
