"""ACLs over WebHDFS: displayed, changed and enforced exactly as in HDFS."""

from __future__ import annotations

import contextlib
import re

import pytest

from peacefs.coordinator.namespace.permissions import Callers

from .conftest import NameSide

ACL = "org.apache.hadoop.hdfs.protocol.AclException"
DENIED = "org.apache.hadoop.security.AccessControlException"
ILLEGAL = "org.apache.hadoop.HadoopIllegalArgumentException"


@pytest.fixture(scope="module")
def side(tmp_path_factory, signer):
    """Yield a name side for authenticated users, and a group."""
    made = NameSide(tmp_path_factory.mktemp("names"), signer, Callers("hdfs", {"staff": ["carl", "dora"]}))
    with contextlib.closing(made), made.served:
        made.register("dn-1", 9866, 9864)
        yield made


@pytest.fixture
def ask(side):
    """Request an operation as a user."""

    def ask(user, method, path, op, **query):
        return side.ask(method, path, op, user_name=user, **query)

    return ask


@pytest.fixture
def home(ask, request):
    """Return a directory that ann owns."""
    path = "/acls-" + re.sub(r"\W+", "-", request.node.name)
    assert ask("ann", "PUT", path, "MKDIRS", permission="750").json == {"boolean": True}
    return path


def acl(ask, path, user="ann"):
    return ask(user, "GET", path, "GETACLSTATUS").json["AclStatus"]


def test_acl_is_shown_with_its_mask_as_the_permission(ask, home):
    plain = acl(ask, home)
    assert (plain["entries"], plain["permission"], plain["stickyBit"]) == ([], "750", False)
    assert "aclBit" not in ask("ann", "GET", home, "GETFILESTATUS").json["FileStatus"]
    changed = ask("ann", "PUT", home, "MODIFYACLENTRIES", aclspec="user:bob:rwx,group:staff:r-x")
    assert (changed.status, changed.body) == (200, b"")
    shown = acl(ask, home)
    assert shown["entries"] == ["user:bob:rwx", "group::r-x", "group:staff:r-x"]
    assert shown["permission"] == "770"
    status = ask("ann", "GET", home, "GETFILESTATUS").json["FileStatus"]
    assert (status["aclBit"], status["permission"]) == (True, "770")
    ask("ann", "PUT", home, "SETPERMISSION", permission="1710")
    assert acl(ask, home)["permission"] == "1710" and acl(ask, home)["stickyBit"]
    assert acl(ask, home)["entries"] == shown["entries"]


def test_acl_is_set_and_removed(ask, home):
    whole = "user::rwx,user:bob:r-x,group::---,other::---,default:user:bob:rwx"
    assert ask("ann", "PUT", home, "SETACL", aclspec=whole).status == 200
    assert acl(ask, home)["entries"] == [
        "user:bob:r-x",
        "group::---",
        "default:user::rwx",
        "default:user:bob:rwx",
        "default:group::---",
        "default:mask::rwx",
        "default:other::---",
    ]
    assert ask("ann", "PUT", home, "REMOVEDEFAULTACL").status == 200
    assert acl(ask, home)["entries"] == ["user:bob:r-x", "group::---"]
    assert ask("ann", "PUT", home, "REMOVEACLENTRIES", aclspec="user:bob:").status == 200
    assert (acl(ask, home)["entries"], acl(ask, home)["permission"]) == ([], "700")
    ask("ann", "PUT", home, "MODIFYACLENTRIES", aclspec="user:bob:rwx")
    assert ask("ann", "PUT", home, "REMOVEACL").status == 200
    assert (acl(ask, home)["entries"], acl(ask, home)["permission"]) == ([], "700")


def test_acl_is_enforced(ask, home):
    ask("ann", "PUT", f"{home}/d", "MKDIRS", permission="700")
    for user in ("bob", "carl"):
        assert ask(user, "GET", home, "LISTSTATUS").error[:2] == (403, DENIED)
    ask("ann", "PUT", home, "MODIFYACLENTRIES", aclspec="user:bob:r-x,group:staff:-wx,mask::rwx")
    assert ask("bob", "GET", home, "LISTSTATUS").status == 200
    assert ask("bob", "PUT", f"{home}/bobs", "MKDIRS").error[:2] == (403, DENIED)
    assert ask("carl", "GET", home, "LISTSTATUS").error[:2] == (403, DENIED)
    assert ask("carl", "PUT", f"{home}/carls", "MKDIRS").json == {"boolean": True}
    assert ask("eve", "GET", f"{home}/d", "GETFILESTATUS").error[:2] == (403, DENIED)
    ask("ann", "PUT", home, "SETPERMISSION", permission="710")
    refused = ask("bob", "GET", home, "LISTSTATUS").error
    assert refused[:2] == (403, DENIED) and refused[2].endswith(":drwx--x---+"), "the mask has no r now"
    assert ask("bob", "GET", home, "CHECKACCESS", fsaction="--x").status == 200
    assert ask("bob", "GET", home, "CHECKACCESS", fsaction="r--").error[:2] == (403, DENIED)


def test_default_acl_decides_about_what_is_made_with_the_unmasked_mode(ask, home):
    ask("ann", "PUT", home, "MODIFYACLENTRIES", aclspec="default:user:bob:rwx,default:other::r-x")
    ask("ann", "PUT", f"{home}/with", "MKDIRS", permission="700", unmaskedpermission="777")
    ask("ann", "PUT", f"{home}/without", "MKDIRS", permission="700")
    assert acl(ask, f"{home}/with")["permission"] == "775"
    assert acl(ask, f"{home}/without")["permission"] == "700"
    for name in ("with", "without"):
        assert acl(ask, f"{home}/{name}")["entries"][:2] == ["user:bob:rwx", "group::r-x"]


def test_acl_is_for_its_owner_and_superusers_to_change(ask, home):
    ask("ann", "PUT", home, "MODIFYACLENTRIES", aclspec="user:bob:rwx")
    for op in ("MODIFYACLENTRIES", "REMOVEACLENTRIES", "SETACL", "REMOVEACL", "REMOVEDEFAULTACL"):
        spec = "user:bob:" if op == "REMOVEACLENTRIES" else "user:bob:rwx"
        status, kind, message = ask("bob", "PUT", home, op, aclspec=spec).error
        assert (status, kind) == (403, DENIED) and "not the owner" in message
    assert ask("hdfs", "PUT", home, "REMOVEACL").status == 200


@pytest.mark.parametrize(
    ("op", "spec", "status", "kind", "words"),
    [
        ("MODIFYACLENTRIES", "user:bob", 400, ILLEGAL, "Invalid <aclSpec> : user:bob"),
        ("MODIFYACLENTRIES", "user:bob:yes", 400, ILLEGAL, "Invalid permission in <aclSpec>"),
        ("MODIFYACLENTRIES", "", 400, "java.lang.IllegalArgumentException", '"aclspec": it is missing'),
        ("REMOVEACLENTRIES", "user:bob:rwx", 400, ILLEGAL, "Invalid <aclSpec>"),
        ("SETACL", "user:bob:rwx", 403, ACL, "the user, group and other entries are required"),
        ("MODIFYACLENTRIES", "mask:bob:rwx", 403, ACL, "must not have a name"),
        (
            "MODIFYACLENTRIES",
            ",".join(f"user:u{number}:r--" for number in range(40)),
            403,
            ACL,
            "ACL has 40 access entries, which exceeds maximum of 32.",
        ),
    ],
)
def test_bad_acl_is_refused_with_hdfss_exception_in_one_line(ask, home, op, spec, status, kind, words):
    refused = ask("ann", "PUT", home, op, aclspec=spec).error
    assert refused[:2] == (status, kind)
    assert words in refused[2] and "\n" not in refused[2]
    if kind == ACL:
        # HDFS appends the path.
        assert refused[2].endswith(f" Path: {home}")
    assert acl(ask, home)["entries"] == []


def test_acl_in_a_snapshot_stays_as_it_was(ask, side, home):
    ask("ann", "PUT", home, "MODIFYACLENTRIES", aclspec="user:bob:rwx")
    ask("hdfs", "PUT", home, "ALLOWSNAPSHOT")
    ask("ann", "PUT", home, "CREATESNAPSHOT", snapshotname="s")
    ask("ann", "PUT", home, "REMOVEACL")
    assert acl(ask, f"{home}/.snapshot/s")["entries"] == ["user:bob:rwx", "group::r-x"]
    changed = ask("ann", "PUT", f"{home}/.snapshot/s", "REMOVEACL")
    assert changed.error[:2] == (403, "org.apache.hadoop.hdfs.protocol.SnapshotAccessControlException")


def test_acl_asked_for_again_is_changed_once(ask, home):
    for _ in range(2):
        done = ask("ann", "PUT", home, "MODIFYACLENTRIES", aclspec="user:bob:rwx", requestid=f"acl-{home}")
        assert done.status == 200
    ask("ann", "PUT", home, "REMOVEACL")
    again = ask("ann", "PUT", home, "MODIFYACLENTRIES", aclspec="user:bob:rwx", requestid=f"acl-{home}")
    assert again.status == 200
    assert acl(ask, home)["entries"] == [], "the first answer, and nothing done"
