"""ACLs: HDFS's rules as tables, and their application in the namespace.

The cases of changes are those of HDFS's own tests of its transformation, written as ACL specifications.
"""

from __future__ import annotations

import pytest

from peacefs.coordinator.namespace import acl_rules, acls
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.acl_rules import acl_entries_max
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.permissions import Access, Principal, refusal
from peacefs.protocol.errors import IllegalChange, InvalidAcl
from peacefs.protocol.values.acl_entries import acl_text, parse_acl

BASE = "user::rwx,group::r-x,other::---"


@pytest.mark.parametrize(
    "text",
    ["user::rwx", "user:ann:r--", "group:staff:---", "mask::rw-", "other::--x", "default:user:ann:-w-"],
)
def test_entry_is_written_as_it_is_read(text):
    assert acl_text(parse_acl(text)) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("user:ann", "Invalid <aclSpec> : user:ann"),
        ("user:ann:rwx:x", "Invalid <aclSpec>"),
        ("user:ann:read", "Invalid permission in <aclSpec> : user:ann:read"),
        ("owner:ann:rwx", "Invalid type of acl in <aclSpec> :owner:ann:rwx"),
        ("default", "Invalid <aclSpec> : default"),
        ("user::rwx,", "Invalid <aclSpec>"),
        ("user:a\nb:rwx", "Invalid <aclSpec>"),
    ],
)
def test_acl_entry_that_is_none_is_refused_in_hadoops_words(text, words):
    with pytest.raises(IllegalChange, match=words) as refused:
        parse_acl(text)
    assert "\n" not in refused.value.message


def test_entries_to_be_removed_have_no_permission():
    assert [str(entry) for entry in parse_acl("user:ann:,default:group", with_permissions=False)] == [
        "user:ann:---",
        "default:group::---",
    ]
    with pytest.raises(IllegalChange):
        parse_acl("user:ann:rwx", with_permissions=False)


@pytest.mark.parametrize(
    ("change", "existing", "spec", "result"),
    [
        # Without a given mask, the mask is the union of everything that it limits.
        ("modify", BASE, "user:ann:rwx", "user::rwx,user:ann:rwx,group::r-x,mask::rwx,other::---"),
        ("modify", BASE, "user:ann:r--,mask::r--", "user::rwx,user:ann:r--,group::r-x,mask::r--,other::---"),
        ("modify", BASE, "mask::r--", "user::rwx,group::r-x,mask::r--,other::---"),
        ("modify", BASE, "user::rw-,other::r--", "user::rw-,group::r-x,other::r--"),
        # Another entry of the same scope changes the existing mask; an entry of the other scope does not.
        (
            "modify",
            "user::rwx,user:ann:rwx,group::r-x,mask::r--,other::---",
            "group:staff:r--",
            "user::rwx,user:ann:rwx,group::r-x,group:staff:r--,mask::rwx,other::---",
        ),
        (
            "modify",
            "user::rwx,user:ann:rwx,group::r-x,mask::r--,other::---",
            "default:user:bob:rw-",
            "user::rwx,user:ann:rwx,group::r-x,mask::r--,other::---,"
            "default:user::rwx,default:user:bob:rw-,default:group::r-x,default:mask::rwx,default:other::---",
        ),
        # A default ACL starts with the base entries of the access ACL.
        (
            "modify",
            BASE,
            "default:other::r--",
            f"{BASE},default:user::rwx,default:group::r-x,default:other::r--",
        ),
        ("remove", "user::rwx,user:ann:rwx,group::r-x,mask::rwx,other::---", "user:ann:---", BASE),
        (
            "remove",
            "user::rwx,user:ann:rwx,user:bob:r--,group::r--,mask::rwx,other::---",
            "user:ann:---",
            "user::rwx,user:bob:r--,group::r--,mask::r--,other::---",
        ),
        ("remove", BASE, "user:nobody:---", BASE),
        (
            "remove",
            "user::rwx,user:ann:rwx,group::r-x,mask::rwx,other::---",
            "user:ann:---,mask::---",
            "user::rwx,group::r-x,other::---",
        ),
        ("replace", BASE, "user::rw-,group::r--,other::r--", "user::rw-,group::r--,other::r--"),
        # Access entries and default entries are replaced separately.
        (
            "replace",
            f"{BASE},default:user::rwx,default:group::r-x,default:other::---",
            "user::rwx,user:ann:r--,group::---,other::---",
            "user::rwx,user:ann:r--,group::---,mask::r--,other::---,"
            "default:user::rwx,default:group::r-x,default:other::---",
        ),
        (
            "replace",
            "user::rwx,user:ann:rwx,group::r-x,mask::r--,other::---",
            "default:user::rwx,default:group::---,default:other::---",
            "user::rwx,user:ann:rwx,group::r-x,mask::r--,other::---,"
            "default:user::rwx,default:group::---,default:other::---",
        ),
    ],
)
def test_changes_follow_hdfss_transformation(change, existing, spec, result):
    done = getattr(acl_rules, change)(parse_acl(existing), parse_acl(spec))
    assert acl_text(done) == result


@pytest.mark.parametrize(
    ("change", "existing", "spec", "words"),
    [
        (
            "remove",
            "user::rwx,user:ann:rwx,group::r-x,mask::rwx,other::---",
            "mask::---",
            "mask is required and cannot be deleted",
        ),
        ("remove", BASE, "user::---", "the user, group and other entries are required"),
        ("replace", BASE, "user:ann:rwx", "the user, group and other entries are required"),
        ("modify", BASE, "mask:ann:rwx", "this entry type must not have a name: mask:ann:rwx"),
        ("modify", BASE, "other:ann:rwx", "must not have a name"),
        ("modify", BASE, "user:ann:r--,user:ann:rw-", "multiple entries with same scope, type and name"),
        ("replace", BASE, f"{BASE},{BASE}", "multiple entries"),
        (
            "modify",
            BASE,
            ",".join(f"user:u{number}:r--" for number in range(acl_entries_max + 1)),
            "ACL has 33 access entries, which exceeds maximum of 32",
        ),
        (
            "modify",
            BASE,
            ",".join(f"user:u{number}:r--" for number in range(acl_entries_max - 3)),
            "ACL has 33 access entries",
        ),
        (
            "modify",
            BASE,
            ",".join(f"default:user:u{number}:r--" for number in range(acl_entries_max)),
            "ACL has 36 default entries",
        ),
    ],
)
def test_acl_that_cannot_be_is_refused(change, existing, spec, words):
    with pytest.raises(InvalidAcl, match=words):
        getattr(acl_rules, change)(parse_acl(existing), parse_acl(spec))


@pytest.mark.parametrize(
    ("acl", "permission", "kept", "bits"),
    [
        ("user::rwx,group::r-x,other::--x", 0o1000, "", 0o1751),
        ("user::rw-,user:ann:rwx,group::r-x,mask::rwx,other::---", 0, "user:ann:rwx,group::r-x", 0o670),
        ("user::rwx,group::rwx,mask::r--,other::---", 0, "group::rwx", 0o740),
        (
            f"{BASE},default:user::rwx,default:group::---,default:other::---",
            0,
            "default:user::rwx,default:group::---,default:other::---",
            0o750,
        ),
    ],
)
def test_acl_is_kept_beside_the_permission_whose_group_is_the_mask(acl, permission, kept, bits):
    stored = acl_rules.stored(parse_acl(acl), permission, is_directory=True)
    assert stored == (bits, kept)
    assert acl_text(acl_rules.logical(*stored)) == acl


@pytest.mark.parametrize(
    ("default", "masked", "unmasked", "permission", "kept"),
    [
        # A minimal default ACL limits the mode, and gives a file no ACL.
        ("default:user::rwx,default:group::r-x,default:other::---", 0o644, None, 0o640, ""),
        # The group bits of the mode limit the mask, but not the group's own entry.
        (
            "default:user::rwx,default:user:ann:rwx,default:group::r-x,default:mask::rwx,default:other::---",
            0o644,
            None,
            0o640,
            "user:ann:rwx,group::r-x",
        ),
        # If the mode before the client's mask is known, only the default ACL counts: HDFS-6962.
        (
            "default:user::rwx,default:user:ann:rwx,default:group::r-x,default:mask::rwx,default:other::---",
            0o644,
            0o666,
            0o660,
            "user:ann:rwx,group::r-x",
        ),
        # An access ACL is not inherited.
        ("user:ann:rwx,group::r-x", 0o644, 0o666, 0o644, ""),
        ("", 0o644, 0o666, 0o644, ""),
    ],
)
def test_default_acl_is_inherited_as_far_as_the_mode_goes(default, masked, unmasked, permission, kept):
    assert acl_rules.inherited(default, masked, unmasked, is_directory=False) == (permission, kept)


#: The entries in addition to 0o770 (the mask is rwx), the caller with its groups, and its permissions.
ENTRIES = "user:ann:r--,user:carl:---,group::r-x,group:staff:-w-,group:guests:---"
RIGHTS = [
    ("owner", {"owner"}, 0o077, ENTRIES, "---", "the owner's own bits, even where others have more"),
    ("ann", {"ann", "staff"}, 0o770, ENTRIES, "r--", "an own entry ends the search, whatever the groups have"),
    ("carl", {"carl", "staff"}, 0o777, ENTRIES, "---", "an own entry without rights is a refusal"),
    ("dora", {"dora", "group"}, 0o770, ENTRIES, "r-x", "the owning group's own entry, not the mask"),
    ("dora", {"dora", "staff"}, 0o770, ENTRIES, "-w-", "a named group"),
    ("dora", {"dora", "group", "staff"}, 0o770, ENTRIES, "rwx", "each right from whichever group grants it"),
    ("dora", {"dora", "guests"}, 0o777, ENTRIES, "---", "a group without rights keeps off those of others"),
    ("eve", {"eve"}, 0o774, ENTRIES, "r--", "others, for whom nothing is said"),
    ("ann", {"ann"}, 0o700, ENTRIES, "---", "the mask limits a named user"),
    ("dora", {"dora", "group"}, 0o710, ENTRIES, "--x", "and the groups"),
    ("eve", {"eve"}, 0o707, ENTRIES, "rwx", "but not others"),
    ("dora", {"dora", "group"}, 0o750, "default:user:dora:rwx", "r-x", "a default ACL gives no access"),
]


@pytest.mark.parametrize(("user", "groups", "permission", "acl", "allowed", "why"), RIGHTS)
def test_access_is_decided_as_in_hdfs(user, groups, permission, acl, allowed, why):
    for letter, access in zip("rwx", (4, 2, 1), strict=True):
        granted = acl_rules.allows(permission, acl, user, frozenset(groups), "owner", "group", access)
        assert granted == (letter in allowed), f"{why}: {letter}"


def test_rights_of_two_groups_are_not_added_up():
    assert not acl_rules.allows(0o770, ENTRIES, "dora", frozenset({"group", "staff"}), "owner", "group", 6)


# -- in the namespace ------------------------------------------------------------------------------------


def change(space, name, path, spec=None):
    parsed = parse_path(path)
    given = () if spec is None else (parse_acl(spec, with_permissions=name != "remove_entries"),)
    space.commit(lambda tx: getattr(acls, name)(tx, parsed, *given))


def shown(space, path):
    status = space.status(path)
    return f"{status.permission:o}", status.acl


def test_permission_changes_the_mask_and_removal_restores_the_groups_own(space):
    space.create("/f", 1, permission=0o640)
    change(space, "modify_entries", "/f", "user:bob:rw-")
    assert shown(space, "/f") == ("660", "user:bob:rw-,group::r--")
    space.commit(lambda tx: namespace.set_permission(tx, parse_path("/f"), 0o604))
    assert shown(space, "/f") == ("604", "user:bob:rw-,group::r--"), "the mask is empty now"
    bob = Principal("bob", frozenset({"bob"}), False)
    inode = space.reader.inode(space.status("/f").inode)
    assert not bob.may(inode, Access.READ)
    change(space, "remove_acl", "/f")
    assert shown(space, "/f") == ("644", "")


def test_default_acl_is_for_directories_and_what_is_made_in_them(space):
    space.create("/f", 1)
    with pytest.raises(InvalidAcl, match="only directories may have a default ACL"):
        change(space, "modify_entries", "/f", "default:user:bob:rwx")
    space.mkdirs("/d", permission=0o750)
    change(space, "modify_entries", "/d", "default:user:bob:rwx")
    default = "default:user::rwx,default:user:bob:rwx,default:group::r-x,default:mask::rwx,default:other::---"
    assert shown(space, "/d") == ("750", default)
    space.create("/d/f", 1, permission=0o644)
    assert shown(space, "/d/f") == ("640", "user:bob:rwx,group::r-x")
    space.mkdirs("/d/e/g", permission=0o755)
    for path in ("/d/e", "/d/e/g"):
        assert shown(space, path) == ("750", f"user:bob:rwx,group::r-x,{default}")
    change(space, "remove_default", "/d/e")
    assert shown(space, "/d/e") == ("750", "user:bob:rwx,group::r-x")
    change(space, "remove_entries", "/d/e", "user:bob:")
    assert shown(space, "/d/e") == ("750", "")


def test_snapshot_and_copy_keep_an_acl(space):
    space.create("/d/f", 1, permission=0o640)
    change(space, "modify_entries", "/d/f", "user:bob:r--")
    before = shown(space, "/d/f")
    space.allow_snapshots("/d")
    space.take_snapshot("/d", "s")
    change(space, "set_acl", "/d/f", "")
    assert shown(space, "/d/f")[1] == ""
    assert shown(space, "/d/.snapshot/s/f") == before
    space.copy("/d/.snapshot/s", "/copy")
    assert shown(space, "/copy/f") == before
    space.restore("/d", "s")
    assert shown(space, "/d/f") == before


def test_refusal_shows_that_there_is_an_acl(space):
    space.create("/f", 1, permission=0o640)
    change(space, "modify_entries", "/f", "user:bob:r--")
    eve = Principal("eve", frozenset({"eve"}), False)
    inode = space.reader.inode(space.status("/f").inode)
    said = refusal(eve, Access.READ, parse_path("/f"), inode).message
    assert said.endswith("-rw-r-----+")
