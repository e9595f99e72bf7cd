"""WebHDFS operations on extended attributes, and their JSON."""

from __future__ import annotations

import msgspec

from peacefs.coordinator.namespace.attributes import SetFlag
from peacefs.coordinator.operations.attributes import AttributeOperations
from peacefs.protocol.asgi import Scope
from peacefs.protocol.values.attribute_values import encode
from peacefs.protocol.webhdfs.answers import Answer, empty_answer, json_answer
from peacefs.protocol.webhdfs.attribute_requests import (
    GetAttributes,
    ListAttributes,
    RemoveAttribute,
    SetAttribute,
)
from peacefs.protocol.webhdfs.request import Request

from .webhdfs_handlers import Handler


class AttributeHandlers:
    def __init__(self, attributes: AttributeOperations) -> None:
        self._attributes = attributes
        self.handlers: dict[type[Request], Handler] = {
            GetAttributes: self._get_attributes,
            ListAttributes: self._list_attributes,
            SetAttribute: self._set_attribute,
            RemoveAttribute: self._remove_attribute,
        }

    async def _get_attributes(self, asked: GetAttributes, _scope: Scope) -> Answer:
        found = await self._attributes.values(asked.path, asked.user, asked.names)
        # HDFS shows an empty value as null.
        shown = [
            {"name": name, "value": encode(value, asked.encoding) if value else None}
            for name, value in found.items()
        ]
        return json_answer({"XAttrs": shown})

    async def _list_attributes(self, asked: ListAttributes, _scope: Scope) -> Answer:
        found = await self._attributes.values(asked.path, asked.user)
        # As in HDFS, the value is itself a JSON text.
        return json_answer({"XAttrNames": msgspec.json.encode(list(found)).decode()})

    async def _set_attribute(self, asked: SetAttribute, _scope: Scope) -> Answer:
        flags = frozenset(SetFlag(flag) for flag in asked.flags)
        await self._attributes.set(asked.path, asked.user, asked.name, asked.value, flags, asked.request_id)
        return empty_answer()

    async def _remove_attribute(self, asked: RemoveAttribute, _scope: Scope) -> Answer:
        await self._attributes.remove(asked.path, asked.user, asked.name, asked.request_id)
        return empty_answer()
