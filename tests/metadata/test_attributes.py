"""Extended attributes in the namespace: access by prefix, flags and limits, and copies along with files."""

from __future__ import annotations

import pytest
from support.open_root import open_root

from peacefs.coordinator.namespace import attributes
from peacefs.coordinator.namespace.attributes import (
    SetFlag,
    attribute_bytes_max,
    attributes_per_inode_max,
    parse_name,
)
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.permissions import Principal
from peacefs.protocol.errors import AccessDenied, FileNotFound, IllegalChange, PathError

ANN, BOB, EVE = (Principal(name, frozenset({name}), False) for name in ("ann", "bob", "eve"))
ROOT = Principal("hdfs", frozenset({"hdfs"}), True)
CREATE, REPLACE = frozenset({SetFlag.CREATE}), frozenset({SetFlag.REPLACE})
EITHER, NEITHER = CREATE | REPLACE, frozenset[SetFlag]()


def put(space, path, name, value=b"v", caller=ANN, flags=EITHER):
    parsed, named = parse_path(path), parse_name(name)
    space.commit(lambda tx: attributes.set_attribute(tx, parsed, caller, named, value, flags))


def drop(space, path, name, caller=ANN):
    parsed, named = parse_path(path), parse_name(name)
    space.commit(lambda tx: attributes.remove_attribute(tx, parsed, caller, named))


def shown(space, path, caller=ANN, *names):
    place = space.locate(path)
    return attributes.attributes(place.reader, place.path, caller, [parse_name(name) for name in names])


@pytest.mark.parametrize(
    ("there", "flags", "refused"),
    [
        (False, CREATE, None),
        (False, REPLACE, "XAttr: a does not exist. The CREATE flag must be specified."),
        (False, EITHER, None),
        (False, NEITHER, "A flag must be specified."),
        (True, CREATE, "XAttr: a already exists. The REPLACE flag must be specified."),
        (True, REPLACE, None),
        (True, EITHER, None),
        (True, NEITHER, "A flag must be specified."),
    ],
)
def test_flags_decide_as_in_hdfs(space, there, flags, refused):
    space.create("/f", 1)
    if there:
        put(space, "/f", "user.a", b"old")
    if refused is None:
        put(space, "/f", "user.a", b"new", flags=flags)
        assert shown(space, "/f") == {"user.a": b"new"}
    else:
        with pytest.raises((PathError, IllegalChange), match=refused):
            put(space, "/f", "user.a", b"new", flags=flags)
        assert shown(space, "/f") == ({"user.a": b"old"} if there else {})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("colour", "must be prefixed with user/trusted/security/system/raw"),
        ("mine.colour", "must be prefixed with"),
        (".colour", "must be prefixed with"),
        ("user.", "name cannot be empty"),
    ],
)
def test_name_without_a_namespace_is_refused(name, words):
    with pytest.raises(IllegalChange, match=words):
        parse_name(name)


def test_namespace_has_no_case_and_a_name_has():
    assert str(parse_name("USER.Colour.of")) == "user.Colour.of"


@pytest.mark.parametrize("name", ["trusted.t", "security.s", "system.s", "raw.r"])
def test_namespaces_of_hdfs_are_for_superusers_or_for_nobody(space, name):
    space.create("/f", 1)
    for caller in (ANN, ROOT):
        if (name, caller) == ("trusted.t", ROOT):
            put(space, "/f", name, caller=caller)
            continue
        for use in (put, drop, lambda *given, caller: shown(given[0], given[1], caller, given[2])):
            with pytest.raises(AccessDenied, match=f"User doesn't have permission for xattr: {name}"):
                use(space, "/f", name, caller=caller)
    put(space, "/f", "user.u")
    assert shown(space, "/f", ANN) == {"user.u": b"v"}
    assert set(shown(space, "/f", ROOT)) == {"user.u", *(["trusted.t"] if name == "trusted.t" else [])}


def test_user_attributes_need_what_the_data_needs(space):
    space.create("/f", 1, permission=0o640)
    for use in (put, drop):
        with pytest.raises(AccessDenied, match="access=WRITE"):
            use(space, "/f", "user.a", caller=EVE)
    with pytest.raises(AccessDenied, match="access=READ"):
        shown(space, "/f", EVE)
    space.mkdirs("/sticky", permission=0o1777)
    with pytest.raises(AccessDenied, match="not the owner"):
        put(space, "/sticky", "user.a", caller=BOB)
    put(space, "/sticky", "user.a", caller=ROOT)
    put(space, "/sticky", "user.a", caller=ANN)
    space.mkdirs("/open", permission=0o777)
    put(space, "/open", "user.a", caller=BOB)


def test_limits_are_hdfss(space):
    space.create("/f", 1)
    put(space, "/f", "user.a", bytes(attribute_bytes_max - 1))
    with pytest.raises(IllegalChange, match=f"name and value is 16384, but the total size is {16385}"):
        put(space, "/f", "user.a", bytes(attribute_bytes_max))
    for number in range(attributes_per_inode_max - 1):
        put(space, "/f", f"user.n{number}")
    with pytest.raises(PathError, match="Cannot add additional XAttr to inode, would exceed limit of 32"):
        put(space, "/f", "user.more")
    put(space, "/f", "user.a", b"small")
    assert len(shown(space, "/f")) == attributes_per_inode_max


def test_missing_attribute_is_said_to_be_missing(space):
    space.create("/f", 1)
    with pytest.raises(PathError, match="At least one of the attributes provided was not found"):
        shown(space, "/f", ANN, "user.a")
    with pytest.raises(PathError, match="No matching attributes found for remove operation"):
        drop(space, "/f", "user.a")
    for use in (put, drop):
        with pytest.raises(FileNotFound):
            use(space, "/none", "user.a")
    with pytest.raises(FileNotFound):
        shown(space, "/none")


def test_attributes_stay_with_a_file_that_is_renamed_and_go_with_one_that_is_replaced(space):
    space.create("/f", 1)
    put(space, "/f", "user.a")
    space.rename("/f", "/g")
    assert shown(space, "/g") == {"user.a": b"v"}
    space.create("/g", 1, overwrite=True)
    assert shown(space, "/g") == {}
    assert space.sql("SELECT count(*) FROM attribute") == [(0,)]


def test_attributes_go_with_a_deleted_tree(space):
    space.create("/d/e/f", 1)
    for path in ("/d", "/d/e", "/d/e/f"):
        put(space, path, "user.a")
    space.delete("/d")
    space.reclaim(1)
    assert space.sql("SELECT count(*) FROM attribute") == [(0,)]


def test_snapshot_shows_attributes_as_they_were_until_it_goes(space):
    space.create("/d/f", 1)
    space.create("/d/gone", 1)
    put(space, "/d/f", "user.a", b"one")
    put(space, "/d/gone", "user.b", b"two")
    space.allow_snapshots("/d")
    space.take_snapshot("/d", "s")
    put(space, "/d/f", "user.a", b"changed")
    put(space, "/d/f", "user.new")
    space.delete("/d/gone")
    assert shown(space, "/d/.snapshot/s/f") == {"user.a": b"one"}
    assert shown(space, "/d/.snapshot/s/gone") == {"user.b": b"two"}
    drop(space, "/d/f", "user.a")
    assert shown(space, "/d/.snapshot/s/f") == {"user.a": b"one"}
    space.restore("/d", "s")
    assert shown(space, "/d/f") == {"user.a": b"one"}
    assert shown(space, "/d/gone") == {"user.b": b"two"}
    space.drop_snapshot("/d", "s")
    space.reclaim()
    assert space.sql("SELECT count(*) FROM attribute") == [(2,)]


def test_copy_has_the_attributes_that_its_maker_may_set(space):
    space.create("/d/f", 1, permission=0o644)
    put(space, "/d", "user.top")
    put(space, "/d/f", "user.a")
    put(space, "/d/f", "trusted.t", caller=ROOT)
    space.commit(open_root)
    space.copy("/d", "/by-ann", caller=ANN)
    space.copy("/d", "/by-root", caller=ROOT)
    assert shown(space, "/by-ann", ROOT) == {"user.top": b"v"}
    assert shown(space, "/by-ann/f", ROOT) == {"user.a": b"v"}
    assert shown(space, "/by-root/f", ROOT) == {"trusted.t": b"v", "user.a": b"v"}
    put(space, "/d/f", "user.a", b"later")
    assert shown(space, "/by-ann/f") == {"user.a": b"v"}


def test_request_that_is_rolled_back_leaves_no_attribute(space):
    space.create("/f", 1)

    def fails(tx):
        attributes.set_attribute(tx, parse_path("/f"), ANN, parse_name("user.a"), b"v", EITHER)
        raise PathError("something else is wrong")

    with pytest.raises(PathError, match="something else"):
        space.commit(fails)
    assert shown(space, "/f") == {}
    space.delete("/f")
