"""Permissions of an inode: by owner, group, other, sticky bit, and superuser."""

from __future__ import annotations

import pytest

from peacefs.coordinator.metadata.model import Inode, InodeKind
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.coordinator.namespace.permissions import Access, Callers, refusal, symbolic
from peacefs.protocol.errors import BadRequest

CALLERS = Callers("hdfs", {"analysts": ["ann", "bob"], "supergroup": ["root"]})


def directory(permission: int, owner: str = "ann", group: str = "analysts") -> Inode:
    return Inode(7, InodeKind.DIRECTORY, permission, owner, group, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("user", "permission", "wanted", "may"),
    [
        ("ann", 0o700, "rwx", True),
        ("ann", 0o500, "-w-", False),
        ("bob", 0o750, "r-x", True),
        ("bob", 0o750, "-w-", False),
        ("eve", 0o750, "--x", False),
        ("eve", 0o751, "--x", True),
        ("eve", 0o000, "---", True),
        # The first matching class decides, even if a later one would allow more.
        ("ann", 0o077, "r--", False),
        ("bob", 0o707, "r--", False),
        ("hdfs", 0o000, "rwx", True),
        ("root", 0o000, "rwx", True),
    ],
)
def test_the_first_of_owner_group_and_other_decides(user: str, permission: int, wanted: str, may: bool) -> None:
    assert CALLERS.of(user).may(directory(permission), Access.parse(wanted)) is may


def test_everyone_is_in_the_group_of_their_name() -> None:
    assert CALLERS.of("eve").may(directory(0o070, group="eve"), Access.parse("rwx"))


@pytest.mark.parametrize(("user", "kept_off"), [("ann", False), ("bob", False), ("eve", True), ("hdfs", False)])
def test_a_sticky_bit_keeps_off_all_but_the_two_owners(user: str, kept_off: bool) -> None:
    child = directory(0o777, owner="bob")
    assert CALLERS.of(user).is_kept_off_by_sticky_bit(directory(0o1777), child) is kept_off
    assert not CALLERS.of(user).is_kept_off_by_sticky_bit(directory(0o777), child)


def test_without_a_superuser_everybody_is_one() -> None:
    assert Callers().of("anybody").may(directory(0), Access.parse("rwx"))


@pytest.mark.parametrize(
    ("permission", "shown"),
    [(0o755, "rwxr-xr-x"), (0o1777, "rwxrwxrwt"), (0o1776, "rwxrwxrwT"), (0o640, "rw-r-----"), (0, "---------")],
)
def test_bits_are_shown_as_ls_shows_them(permission: int, shown: str) -> None:
    assert symbolic(permission) == shown


def test_a_refusal_is_worded_as_in_hdfs() -> None:
    error = refusal(CALLERS.of("eve"), Access.parse("r-x"), parse_path("/a/b"), directory(0o1770))
    expected = 'Permission denied: user=eve, access=READ_EXECUTE, inode="/a/b":ann:analysts:drwxrwx--T'
    assert error.message == expected


@pytest.mark.parametrize(
    "user", ["a\nb", "a\0", "a:b", "", "x" * 256], ids=["newline", "NUL", "colon", "none", "long"]
)
def test_user_whose_name_is_not_allowed_is_nobody_here(user: str) -> None:
    with pytest.raises(BadRequest, match="user") as refused:
        CALLERS.of(user)
    assert "\n" not in refused.value.message
    assert CALLERS.of("Domain Users").user == "Domain Users"
