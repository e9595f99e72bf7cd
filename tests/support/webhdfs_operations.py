"""Operations of WebHDFS as (method, op, query), with what they need at least: for tests that try all of them."""

from __future__ import annotations

#: Whatever changes something at a path.
CHANGES = [
    ("PUT", "CREATE", {}),
    ("PUT", "MKDIRS", {}),
    ("PUT", "RENAME", {"destination": "/elsewhere"}),
    ("PUT", "SETTIMES", {"modificationtime": 1}),
    ("PUT", "SETPERMISSION", {"permission": "777"}),
    ("PUT", "SETOWNER", {"group": "eve"}),
    ("PUT", "SETREPLICATION", {"replication": 1}),
    ("POST", "APPEND", {}),
    ("POST", "TRUNCATE", {"newlength": 0}),
    ("POST", "CONCAT", {"sources": "/f"}),
    ("DELETE", "DELETE", {}),
]
