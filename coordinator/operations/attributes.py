"""Operations on extended attributes for WebHDFS, REST and frames."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.coordinator.namespace import access_checks as checks
from peacefs.coordinator.namespace import attributes
from peacefs.coordinator.namespace.attributes import SetFlag, parse_name
from peacefs.coordinator.namespace.paths import NamespacePath, parse_path
from peacefs.coordinator.namespace.permissions import Principal
from peacefs.coordinator.namespace.snapshots import is_list_of_snapshots, locate

from .context import OperationContext


class AttributeOperations:
    """Reads and changes attributes (`namespace.attributes`). A repeated request id changes nothing."""

    def __init__(self, context: OperationContext) -> None:
        self._ctx = context

    async def set(
        self, path: str, user: str, name: str, value: bytes, flags: frozenset[SetFlag], request_id: str = ""
    ) -> None:
        """Set an attribute if the flags allow it."""
        named = parse_name(name)

        def change(tx: Transaction, at: NamespacePath, caller: Principal) -> None:
            attributes.set_attribute(tx, at, caller, named, value, flags)

        digest = hashlib.blake2b(value, digest_size=16).hexdigest()
        what = ("set attribute", str(named), digest, sorted(flag.value for flag in flags))
        await self._ctx.change(path, user, what, request_id, change)

    async def remove(self, path: str, user: str, name: str, request_id: str = "") -> None:
        """Remove an existing attribute."""
        named = parse_name(name)

        def change(tx: Transaction, at: NamespacePath, caller: Principal) -> None:
            attributes.remove_attribute(tx, at, caller, named)

        await self._ctx.change(path, user, ("remove attribute", str(named)), request_id, change)

    async def values(self, path: str, user: str, names: Sequence[str] = ()) -> dict[str, bytes]:
        """Look up attributes by name; without names, all that the user may see. Snapshots have their own."""
        parsed, caller, named = parse_path(path), self._ctx.caller(user), [parse_name(name) for name in names]
        await self._ctx.under_construction.settle(parsed)
        checks.check_way_to_snapshots(self._ctx.reader, parsed, caller)
        if is_list_of_snapshots(parsed):
            parsed = parsed.ancestor(len(parsed.components) - 1)
        place = locate(self._ctx.reader, parsed)
        return attributes.attributes(place.reader, place.path, caller, named)
