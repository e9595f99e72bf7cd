"""Check the names of users and groups. Pure.

Nothing looks them up: they are names and no accounts. So whatever a directory service may have is taken, with
spaces, slashes and letters of any script; but nothing that breaks a line or a `user:group`.
"""

from __future__ import annotations

import re
from typing import Final

from peacefs.protocol.errors import BadRequest

# For users and groups. Linux: LOGIN_NAME_MAX is 256 with the byte that ends it; HDFS has no limit.
account_name_characters_max: Final = 255


#: Control characters, what ends a line in Unicode, halves of surrogate pairs, and what parts a user from a group.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff:]")
_SHOWN_CHARACTERS = 40


def check_account_name(what: str, name: str) -> None:
    """Raises BadRequest; `what` is what the name is said to be: a user, an owner, a group."""
    if len(name) > account_name_characters_max:
        raise BadRequest(
            f"the {what} {name[:_SHOWN_CHARACTERS]!r}... has {len(name)} characters; "
            f"at most {account_name_characters_max} are allowed"
        )
    if not name:
        raise BadRequest(f"the {what} has no name")
    if (found := _FORBIDDEN.search(name)) is not None:
        raise BadRequest(
            f"the {what} {name[:_SHOWN_CHARACTERS]!r} contains {found[0]!r}; "
            "names of users and groups have no colons and no control characters"
        )
