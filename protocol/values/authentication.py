"""The ways in which callers of a cluster authenticate."""

from __future__ import annotations

from enum import StrEnum


class AuthenticationMode(StrEnum):
    """The values of the option `--authentication`."""

    #: No authentication: user names are trusted, as in Hadoop's simple authentication.
    SIMPLE = "simple"
    TOKEN = "token"
