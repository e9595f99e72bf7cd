"""Parses WebHDFS requests: for the operations of the table of names, and those that only WebHDFS has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from peacefs.protocol.asgi import Scope
from peacefs.protocol.messages import NameChange
from peacefs.protocol.webhdfs.query import RequestQuery, find_operation, path_of
from peacefs.protocol.webhdfs.request import Request, asker
from peacefs.protocol.webhdfs.requests import WEBHDFS_OPERATIONS

from .name_row import Form, NameRequest, Row
from .name_table import NAME_TABLE

Reader = Callable[[str, str, RequestQuery], Request | NameRequest]


def _reader(row: Row, form: Form) -> Reader:
    def read(path: str, user: str, query: RequestQuery) -> NameRequest:
        fields = form.fields(query)
        if issubclass(row.message, NameChange):
            fields["request_id"] = query.text("requestid") or ""
        return NameRequest(row, form, row.message(path, user, **fields))

    return read


def _readers_of_table(method: str) -> dict[str, Reader]:
    return {
        form.name: _reader(row, form) for row in NAME_TABLE.values() for form in row.forms if form.method == method
    }


#: The parsers of all operations, by HTTP method and name.
OPERATIONS: Final[Mapping[str, Mapping[str, Reader]]] = {
    method: {**WEBHDFS_OPERATIONS.get(method, {}), **_readers_of_table(method)}
    for method in ("GET", "PUT", "POST", "DELETE")
}


def parse_request(scope: Scope) -> Request | NameRequest:
    """Parse an HTTP request into an operation. Raises only BadRequest, Unsupported, AccessDenied or PathError."""
    query = RequestQuery(scope["query_string"])
    read = find_operation(scope["method"], query, OPERATIONS)
    request = read(path_of(scope), asker(scope, query), query)
    if isinstance(request, NameRequest):
        return request
    request_id = query.text("requestid")
    return request if request_id is None else replace(request, request_id=request_id)
