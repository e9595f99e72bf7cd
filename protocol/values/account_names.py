"""Checks the names of users and groups. Pure.

Names are not looked up anywhere. So all names that a directory service could have are allowed, with spaces,
slashes and letters of any script, but no line breaks, and no colon because it separates `user:group`.
"""

from __future__ import annotations

import re
from typing import Final

from peacefs.protocol.errors import BadRequest

# For users and groups. Linux: LOGIN_NAME_MAX is 256, including the terminating byte. HDFS has no limit.
account_name_characters_max: Final = 255


#: Control characters, Unicode line separators, surrogates, and the colon.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff:]")
_SHOWN_CHARACTERS = 40


def check_account_name(what: str, name: str) -> None:
    """Raise BadRequest if the name is not allowed; `what` is "user", "owner" or "group", for the message."""
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
