"""The outcomes of operations on names, for one tree of values. Written from HDFS's rules; knows no product.

`apply` takes a tree and a call, and returns the tree after it with what the caller is told: an answer, or a
`Refused` with the simple name of Hadoop's exception. Trees are values: they are compared, hashed, never changed.

Three rules are peacefs's own. A call changes all or nothing, also a `mkdirs` whose quota ends halfway. A rename
that is asked again succeeds again, as long as its target is what it moved there and its source is still missing.
The sticky bit of a directory protects files in it also from being replaced by a rename.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

Names = tuple[str, ...]
#: The superuser, to whom permissions do not apply.
SUPERUSER = "superuser"

_NOT_FOUND = "FileNotFoundException"
_EXISTS = "FileAlreadyExistsException"
_THROUGH_FILE = "ParentNotDirectoryException"
_NO_DIRECTORY = "PathIsNotDirectoryException"
_NOT_EMPTY = "PathIsNotEmptyDirectoryException"
_DENIED = "AccessControlException"
_RENAME = "IOException"
_QUOTA = "NSQuotaExceededException"
_READ, _WRITE, _EXECUTE = 4, 2, 1
_STICKY = 0o1000


class Node(NamedTuple):
    """A directory, or a file with its content. The group is always one that no ordinary user is in."""

    content: str | None
    owner: str = SUPERUSER
    permission: int = 0o755
    #: The most names that a directory may hold, itself among them.
    quota: int | None = None
    #: The path from which it was renamed.
    origin: Names | None = None

    @property
    def is_directory(self) -> bool:
        return self.content is None


class Call(NamedTuple):
    """One request. Fields that the operation does not use keep their defaults."""

    op: str
    path: Names
    target: Names = ()
    content: str = ""
    overwrite: bool = False
    recursive: bool = False
    user: str = SUPERUSER
    permission: int = 0
    #: A new owner.
    owner: str = ""
    #: A new quota of names; -1 removes it.
    limit: int = 0

    def __str__(self) -> str:
        said = [self.op, shown(self.path)]
        said += ["to", shown(self.target)] if self.op == "rename" else []
        said += [repr(self.content)] if self.op == "create" else []
        said += [f"{self.permission:o}"] if self.op == "set_permission" else []
        said += [self.owner] if self.op == "set_owner" else []
        said += [str(self.limit)] if self.op == "set_quota" else []
        said += ["overwriting"] if self.overwrite else []
        said += ["recursively"] if self.recursive else []
        said += [] if self.user == SUPERUSER else [f"by {self.user}"]
        return " ".join(said)


class Refused(NamedTuple):
    """An error. The change did not happen."""

    error: str


#: The answer: True for a change, False if a delete found nothing, a content, a status, or names of a directory.
Answer = bool | str | tuple[object, ...]
Outcome = Answer | Refused
#: Operations that change nothing.
READS = frozenset(("read", "stat", "list"))


class _Refusal(Exception):
    def __init__(self, error: str) -> None:
        self.error = error


class Tree:
    """Nodes by path, the root among them. A value: changes make another tree."""

    __slots__ = ("_hash", "nodes")

    def __init__(self, nodes: Mapping[Names, Node] | None = None, known_hash: int | None = None) -> None:
        self.nodes: Mapping[Names, Node] = nodes if nodes is not None else {(): Node(None)}
        if known_hash is None:
            known_hash = 0
            for item in self.nodes.items():
                known_hash ^= hash(item)
        self._hash = known_hash

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and self._hash == other._hash and self.nodes == other.nodes

    def changed(self, changes: Mapping[Names, Node | None]) -> Tree:
        """Return this tree with other nodes at some paths; None removes a node."""
        nodes, mixed = dict(self.nodes), self._hash
        for path, node in changes.items():
            before = nodes.pop(path, None)
            if before is not None:
                mixed ^= hash((path, before))
            if node is not None:
                nodes[path] = node
                mixed ^= hash((path, node))
        return Tree(nodes, mixed)

    def below(self, path: Names) -> Iterator[Names]:
        """Yield the paths of everything in a directory, at any depth."""
        depth = len(path)
        return (each for each in self.nodes if len(each) > depth and each[:depth] == path)

    def children(self, path: Names) -> list[Names]:
        return sorted(
            (each for each in self.below(path) if len(each) == len(path) + 1), key=lambda each: each[-1].encode()
        )


def shown(path: Names) -> str:
    return "/" + "/".join(path)


def apply(tree: Tree, call: Call) -> tuple[Tree, Outcome]:
    """Return the tree after a call, and the outcome for the caller."""
    try:
        return _OPERATIONS[call.op](tree, call)
    except _Refusal as refusal:
        return tree, Refused(refusal.error)


# -- ways ------------------------------------------------------------------------------------------------


def _walk(tree: Tree, path: Names, user: str, through_file: str) -> Node | None:
    """Return the node at a path. Raises if the path leads through a file or a directory closed to the user."""
    for depth in range(len(path)):
        node = tree.nodes.get(path[:depth])
        if node is None:
            return None
        if not node.is_directory:
            raise _Refusal(through_file)
        _need(node, user, _EXECUTE)
    return tree.nodes.get(path)


def _need(node: Node, user: str, access: int) -> None:
    if not _may(node, user, access):
        raise _Refusal(_DENIED)


def _may(node: Node, user: str, access: int) -> bool:
    if user == SUPERUSER:
        return True
    bits = node.permission >> 6 if user == node.owner else node.permission
    return bits & access == access


def _deepest(tree: Tree, path: Names) -> Names:
    """Return the nearest directory above a path that exists."""
    above = path[:-1]
    while above not in tree.nodes:
        above = above[:-1]
    return above


def _need_removable(tree: Tree, path: Names, user: str) -> None:
    """Raise unless the user may write the parent and the sticky bit permits the removal."""
    if not path or path[:-1] not in tree.nodes:
        return
    parent, node = tree.nodes[path[:-1]], tree.nodes.get(path)
    if node is not None and parent.permission & _STICKY and user not in (SUPERUSER, parent.owner, node.owner):
        raise _Refusal(_DENIED)
    _need(parent, user, _WRITE)


# -- quotas ----------------------------------------------------------------------------------------------


def _charge(tree: Tree, *changes: tuple[Names, int]) -> None:
    """Raise if added names exceed a quota of a directory above them."""
    added: dict[Names, int] = {}
    for path, names in changes:
        for depth in range(len(path)):
            added[path[:depth]] = added.get(path[:depth], 0) + names
    for directory, names in added.items():
        node = tree.nodes.get(directory)
        if node is None or node.quota is None or names <= 0:
            continue
        if 1 + sum(1 for _ in tree.below(directory)) + names > node.quota:
            raise _Refusal(_QUOTA)


# -- operations ------------------------------------------------------------------------------------------


def _mkdirs(tree: Tree, call: Call) -> tuple[Tree, Outcome]:
    there = _walk(tree, call.path, call.user, _THROUGH_FILE)
    if there is not None:
        if not there.is_directory:
            raise _Refusal(_EXISTS)
        return tree, True
    above = _deepest(tree, call.path)
    _need(tree.nodes[above], call.user, _WRITE)
    _charge(tree, (call.path, len(call.path) - len(above)))
    permission = call.permission or 0o755
    # The user can enter and write the directories on the way. They are not sticky.
    on_the_way = Node(None, call.user, permission & 0o777 | 0o300)
    made: dict[Names, Node | None] = {
        call.path[:depth]: on_the_way for depth in range(len(above) + 1, len(call.path))
    }
    return tree.changed({**made, call.path: Node(None, call.user, permission)}), True


def _create(tree: Tree, call: Call) -> tuple[Tree, Outcome]:
    there = _walk(tree, call.path, call.user, _THROUGH_FILE)
    above = _deepest(tree, call.path)
    _need(tree.nodes[above], call.user, _WRITE)
    if there is not None and call.overwrite and not there.is_directory:
        _need(there, call.user, _WRITE)
    if there is not None and (there.is_directory or not call.overwrite):
        raise _Refusal(_EXISTS)
    changes: dict[Names, Node | None] = {}
    if there is None:
        _charge(tree, (call.path, len(call.path) - len(above)))
        # New parents get the bits of their parent, without the write bits that the file does not have.
        permission = tree.nodes[above].permission & 0o777 & ~0o022 | 0o300
        for depth in range(len(above) + 1, len(call.path)):
            changes[call.path[:depth]] = Node(None, call.user, permission)
    changes[call.path] = Node(call.content, call.user, 0o644)
    return tree.changed(changes), True


def _delete(tree: Tree, call: Call) -> tuple[Tree, Outcome]:
    there = _walk(tree, call.path, call.user, _DENIED)
    _need_removable(tree, call.path, call.user)
    if there is None:
        return tree, False
    below = list(tree.below(call.path))
    for path in (call.path, *below):
        if tree.nodes[path].is_directory and tree.children(path):
            _need(tree.nodes[path], call.user, _READ | _WRITE | _EXECUTE)
    if below and not call.recursive:
        raise _Refusal(_NOT_EMPTY)
    return tree.changed(dict.fromkeys((call.path, *below))), True


def _rename(tree: Tree, call: Call) -> tuple[Tree, Outcome]:
    source, target = call.path, call.target
    moved = _walk(tree, source, call.user, _DENIED)
    there = _walk(tree, target, call.user, _THROUGH_FILE)
    _need_removable(tree, source, call.user)
    if target:
        _need(tree.nodes[_deepest(tree, target)], call.user, _WRITE)
    if call.overwrite:
        _need_removable(tree, target, call.user)
    if moved is None and there is not None and there.origin == source:
        return tree, True
    if moved is None:
        raise _Refusal(_NOT_FOUND)
    if source and source == target:
        raise _Refusal(_EXISTS)
    if not source or not target or target[: len(source)] == source:
        raise _Refusal(_RENAME)
    if there is None:
        if target[:-1] not in tree.nodes:
            raise _Refusal(_NOT_FOUND)
    elif there.is_directory != moved.is_directory:
        raise _Refusal(_RENAME)
    elif not call.overwrite:
        raise _Refusal(_EXISTS)
    elif next(tree.below(target), None) is not None:
        raise _Refusal(_RENAME)
    below = list(tree.below(source))
    names = 1 + len(below)
    _charge(tree, (source, -names), (target, names), (target, 0 if there is None else -1))
    changes: dict[Names, Node | None] = dict.fromkeys((source, *below))
    changes |= {target + path[len(source) :]: tree.nodes[path] for path in below}
    changes[target] = moved._replace(origin=source)
    return tree.changed(changes), True


def _existing(tree: Tree, call: Call, through_file: str = _DENIED) -> Node:
    there = _walk(tree, call.path, call.user, through_file)
    if there is None:
        raise _Refusal(_NOT_FOUND)
    return there


def _seen(tree: Tree, call: Call) -> Node:
    """Return the node of which the status is requested. A read requests the status first, too."""
    return _existing(tree, call, _NOT_FOUND if call.user == SUPERUSER else _DENIED)


def _read(tree: Tree, call: Call) -> tuple[Tree, Outcome]:
    there = _seen(tree, call)
    if there.content is None:
        raise _Refusal(_NOT_FOUND)
    _need(there, call.user, _READ)
    return tree, there.content


def _stat(tree: Tree, call: Call) -> tuple[Tree, Outcome]:
    there = _seen(tree, call)
    length = "directory" if there.content is None else len(there.content)
    return tree, (length, there.owner, there.permission)


def _list(tree: Tree, call: Call) -> tuple[Tree, Outcome]:
    there = _existing(tree, call)
    if there.is_directory:
        _need(there, call.user, _READ | _EXECUTE)
        return tree, tuple(path[-1] for path in tree.children(call.path))
    return tree, (call.path[-1],)


def _set_permission(tree: Tree, call: Call) -> tuple[Tree, Outcome]:
    there = _existing(tree, call)
    if call.user not in (SUPERUSER, there.owner):
        raise _Refusal(_DENIED)
    return tree.changed({call.path: there._replace(permission=call.permission)}), True


def _set_owner(tree: Tree, call: Call) -> tuple[Tree, Outcome]:
    there = _walk(tree, call.path, call.user, _DENIED)
    if there is None:
        raise _Refusal(_NOT_FOUND)
    if call.user != SUPERUSER and (call.owner != call.user or call.user != there.owner):
        raise _Refusal(_DENIED)
    return tree.changed({call.path: there._replace(owner=call.owner)}), True


def _set_quota(tree: Tree, call: Call) -> tuple[Tree, Outcome]:
    if call.user != SUPERUSER:
        raise _Refusal(_DENIED)
    there = _existing(tree, call)
    if not there.is_directory:
        raise _Refusal(_NO_DIRECTORY)
    return tree.changed({call.path: there._replace(quota=None if call.limit == -1 else call.limit)}), True


_OPERATIONS: dict[str, Callable[[Tree, Call], tuple[Tree, Outcome]]] = {
    "mkdirs": _mkdirs,
    "create": _create,
    "delete": _delete,
    "rename": _rename,
    "read": _read,
    "stat": _stat,
    "list": _list,
    "set_permission": _set_permission,
    "set_owner": _set_owner,
    "set_quota": _set_quota,
}
