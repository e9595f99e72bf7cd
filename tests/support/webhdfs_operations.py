"""WebHDFS operations as (method, op, query) with minimal parameters, for tests that try all of them."""

from __future__ import annotations

#: Operations that change a path.
CHANGES = [
    ("PUT", "CREATE", {}),
    ("PUT", "MKDIRS", {}),
    ("PUT", "RENAME", {"destination": "/elsewhere"}),
    ("PUT", "SETTIMES", {"modificationtime": 1}),
    ("PUT", "SETPERMISSION", {"permission": "777"}),
    ("PUT", "SETOWNER", {"group": "eve"}),
    ("PUT", "SETREPLICATION", {"replication": 1}),
    ("PUT", "SETXATTR", {"xattr.name": "user.a", "xattr.value": "v", "flag": "CREATE"}),
    ("PUT", "REMOVEXATTR", {"xattr.name": "user.a"}),
    ("PUT", "MODIFYACLENTRIES", {"aclspec": "user:bob:r--"}),
    ("PUT", "REMOVEACLENTRIES", {"aclspec": "user:bob:"}),
    ("PUT", "REMOVEDEFAULTACL", {}),
    ("PUT", "REMOVEACL", {}),
    ("PUT", "SETACL", {"aclspec": "user::rwx,group::r--,other::---"}),
    ("POST", "APPEND", {}),
    ("POST", "TRUNCATE", {"newlength": 0}),
    ("POST", "CONCAT", {"sources": "/f"}),
    ("DELETE", "DELETE", {}),
]
