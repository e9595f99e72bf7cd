"""WebHDFS operations on extended attributes, and their JSON."""

from __future__ import annotations

from peacefs.coordinator.operations.attributes import AttributeOperations
from peacefs.protocol.asgi import Scope
from peacefs.protocol.values.attribute_values import encode
from peacefs.protocol.webhdfs.answers import Answer, json_answer
from peacefs.protocol.webhdfs.attribute_requests import (
    GetAttributes,
)
from peacefs.protocol.webhdfs.request import Request

from .webhdfs_handlers import Handler


class AttributeHandlers:
    def __init__(self, attributes: AttributeOperations) -> None:
        self._attributes = attributes
        self.handlers: dict[type[Request], Handler] = {
            GetAttributes: self._get_attributes,
        }

    async def _get_attributes(self, asked: GetAttributes, _scope: Scope) -> Answer:
        found = await self._attributes.values(asked.path, asked.user, asked.names)
        # HDFS shows an empty value as null.
        shown = [
            {"name": name, "value": encode(value, asked.encoding) if value else None}
            for name, value in found.items()
        ]
        return json_answer({"XAttrs": shown})
