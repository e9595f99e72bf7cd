"""The coordinator's side of WebHDFS: call the operation for each parsed request, and answer with its outcome.

An ASGI application, which passes other requests to a fallback. It reads no request bodies: a client that sends a
body with CREATE is redirected all the same, unless the request says `data=true` (`uploads.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import msgspec
from msgspec.structs import replace

from peacefs.coordinator.authentication.delegation import DelegationTokens
from peacefs.coordinator.calls.name_row import NAME_REQUEST, NameRequest
from peacefs.coordinator.calls.webhdfs_json import (
    block_locations_json,
    located_blocks_json,
    space_json,
    status_json,
    statuses_json,
    trash_roots_json,
)
from peacefs.coordinator.calls.webhdfs_requests import parse_request
from peacefs.coordinator.limits import list_page_entries
from peacefs.coordinator.metadata.model import ListPage
from peacefs.coordinator.namespace.permissions import Access
from peacefs.coordinator.operations.append import AppendFile
from peacefs.coordinator.operations.files import Files
from peacefs.coordinator.operations.read import FileLocations
from peacefs.protocol.asgi import App, Receive, Scope, Send, client_host, header
from peacefs.protocol.callers.caller import Via, caller_of, effective_user_of
from peacefs.protocol.callers.delegation import KIND
from peacefs.protocol.errors import PathError, Unsupported
from peacefs.protocol.ids import new_request_id
from peacefs.protocol.new_file import block_bytes_notice
from peacefs.protocol.trace_context import current_or_new
from peacefs.protocol.values.trash import home_of, trash_of
from peacefs.protocol.webhdfs.answers import (
    Answer,
    JsonStream,
    empty_answer,
    fault_answer,
    json_answer,
    send_answer,
    send_stream,
)
from peacefs.protocol.webhdfs.credentials import delegation_of
from peacefs.protocol.webhdfs.delegation_requests import (
    CancelDelegationToken,
    GetDelegationToken,
    RenewDelegationToken,
)
from peacefs.protocol.webhdfs.query import is_webhdfs
from peacefs.protocol.webhdfs.redirects import ExtendFile, ReadFile, SumFile, Wanted, WriteFile, location
from peacefs.protocol.webhdfs.request import Request
from peacefs.protocol.webhdfs.requests import (
    Append,
    CheckAccess,
    Create,
    GetBlockLocations,
    GetChecksum,
    GetHomeDirectory,
    GetLinkTarget,
    GetLocatedBlocks,
    GetSpace,
    GetTrashRoot,
    GetTrashRoots,
    ListStatus,
    Open,
    Redirected,
)

from .uploads import Uploads, has_data
from .webhdfs_attributes import AttributeHandlers
from .webhdfs_handlers import Handler
from .webhdfs_policies import PolicyHandlers
from .webhdfs_snapshots import SnapshotHandlers

_encode_json = msgspec.json.Encoder().encode


class _Ticket(Protocol):
    """The address of the gateway that performs the data side of an operation."""

    @property
    def http_host(self) -> str: ...
    @property
    def http_port(self) -> int: ...


class WebHdfs:
    """Answers requests under `/webhdfs` with one handler per operation; `fallback` answers the rest.

    Handlers call `Files`. OPEN, GETFILECHECKSUM, CREATE and APPEND only redirect to a gateway.
    """

    def __init__(
        self,
        files: Files,
        fallback: App,
        new_request_id: Callable[[], str] = new_request_id,
        delegation: DelegationTokens | None = None,
        uploads: Uploads | None = None,
    ) -> None:
        """Answer with `files`. `delegation` is None if user names are believed without tokens."""
        self._files = files
        self._fallback = fallback
        self._new_request_id = new_request_id
        self._delegation = delegation
        self._uploads = uploads
        self._handlers: dict[type[Request], Handler] = {
            **AttributeHandlers(files.attributes).handlers,
            **SnapshotHandlers(files.snapshots).handlers,
            **PolicyHandlers(files.names).handlers,
            ListStatus: self._list_status,
            GetBlockLocations: self._get_block_locations,
            GetLocatedBlocks: self._get_located_blocks,
            GetSpace: self._get_space,
            GetHomeDirectory: self._get_home_directory,
            GetTrashRoot: self._get_trash_root,
            GetTrashRoots: self._get_trash_roots,
            GetLinkTarget: self._get_link_target,
            CheckAccess: self._check_access,
            GetChecksum: self._get_checksum,
            Open: self._open,
            Create: self._create,
            Append: self._append,
            GetDelegationToken: self._get_delegation_token,
            RenewDelegationToken: self._renew_delegation_token,
            CancelDelegationToken: self._cancel_delegation_token,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_webhdfs(scope):
            await self._fallback(scope, receive, send)
            return
        if self._uploads is not None and has_data(scope):
            answer: Answer | JsonStream = await self._uploads.answer(scope, receive, self._redirecting)
        else:
            answer = await self._answer(scope)
        if isinstance(answer, JsonStream):
            await send_stream(scope, receive, send, answer)
        else:
            await send_answer(scope, send, answer)

    async def _redirecting(self, scope: Scope) -> Answer:
        answer = await self._answer(scope)
        assert isinstance(answer, Answer), "only listings are streamed"
        return answer

    async def _answer(self, scope: Scope) -> Answer | JsonStream:
        try:
            request = parse_request(scope)
            if isinstance(request, NameRequest):
                scope[NAME_REQUEST] = request
                return await request.answer(self._files, client_host(scope))
            return await self._handlers[type(request)](request, scope)
        except Exception as fault:
            return fault_answer(fault, scope)

    # -- reading names -----------------------------------------------------------------------------

    async def _list_status(self, asked: ListStatus, _scope: Scope) -> Answer | JsonStream:
        page = await self._page(asked, None)
        if page.remaining == 0:
            return json_answer(statuses_json(page.entries))
        return JsonStream(self._listing(asked, page))

    async def _listing(self, asked: ListStatus, page: ListPage) -> AsyncIterator[bytes]:
        """Yield a long listing page by page, so that other tasks get their turn between pages."""
        yield b'{"FileStatuses":{"FileStatus":['
        while True:
            yield _encode_json([status_json(status) for status in page.entries])[1:-1]
            if page.remaining == 0:
                break
            await asyncio.sleep(0)
            last = page.entries[-1].name
            page = await self._page(asked, last)
            if page.entries:
                yield b","
        yield b"]}}"

    async def _page(self, asked: ListStatus, start_after: str | None) -> ListPage:
        """Return a page of a full listing, for which it is enough to know whether more follows."""
        return await self._files.names.list_page(
            asked.path, asked.user, start_after, list_page_entries, remaining_max=1
        )

    async def _get_block_locations(self, asked: GetBlockLocations, _scope: Scope) -> Answer:
        return json_answer(block_locations_json(await self._locate(asked)))

    async def _get_located_blocks(self, asked: GetLocatedBlocks, _scope: Scope) -> Answer:
        return json_answer(located_blocks_json(await self._locate(asked)))

    async def _locate(self, asked: GetBlockLocations) -> FileLocations:
        return await self._files.reading.block_locations(asked.path, asked.user, asked.offset, asked.length)

    async def _get_space(self, _asked: GetSpace, _scope: Scope) -> Answer:
        return json_answer(space_json(self._files.reading.space()))

    async def _get_home_directory(self, asked: GetHomeDirectory, _scope: Scope) -> Answer:
        return json_answer({"Path": home_of(asked.user)})

    async def _get_trash_root(self, asked: GetTrashRoot, _scope: Scope) -> Answer:
        return json_answer({"Path": trash_of(asked.user)})

    async def _get_trash_roots(self, asked: GetTrashRoots, _scope: Scope) -> Answer:
        return json_answer(trash_roots_json(await self._files.trash.roots(asked.user, all_users=asked.all_users)))

    async def _get_link_target(self, asked: GetLinkTarget, _scope: Scope) -> Answer:
        await self._files.names.status(asked.path, asked.user)
        raise PathError(f"Path {asked.path} is not a symbolic link")

    async def _check_access(self, asked: CheckAccess, _scope: Scope) -> Answer:
        await self._files.names.check_access(asked.path, asked.user, Access.parse(asked.action))
        return empty_answer()

    # -- redirects to a gateway ----------------------------------------------------------------------

    async def _open(self, asked: Open, scope: Scope) -> Answer:
        ticket = await self._files.reading.open(
            asked.path, asked.user, client_host(scope), asked.exclude, offset=asked.offset
        )
        if asked.offset >= ticket.length > 0:
            raise PathError(
                f"Offset={asked.offset} out of the range [0, {ticket.length}); OPEN, path={asked.path}"
            )
        wanted = ReadFile(asked.path, ticket.token, asked.offset, asked.length)
        return self._redirect(asked, scope, wanted, ticket)

    async def _get_checksum(self, asked: GetChecksum, scope: Scope) -> Answer:
        ticket = await self._files.reading.open(asked.path, asked.user, client_host(scope), asked.exclude)
        wanted = SumFile(asked.path, ticket.token, ticket.block_bytes)
        return self._redirect(asked, scope, wanted, ticket)

    async def _create(self, asked: Create, scope: Scope) -> Answer:
        file = replace(asked.file, request_id=self._new_request_id())
        # A file that the coordinator passes on appears when it is complete, or not at all.
        is_whole = self._uploads is not None and has_data(scope)
        ticket = await self._files.writing.create(
            file, client_host(scope), exclude=asked.exclude, is_shown=True, is_whole=is_whole
        )
        written = WriteFile(asked.path, ticket.token, ticket.allocated.token, header(scope, b"host") or "")
        notice = block_bytes_notice(asked.file.block_bytes, ticket.block_bytes)
        # RFC 7234: the code 299 is for warnings of any kind.
        warning = {} if notice is None else {"warning": f'299 peacefs "{notice}"'}
        return self._redirect(asked, scope, written, ticket, **warning)

    async def _append(self, asked: Append, scope: Scope) -> Answer:
        wanted = AppendFile(asked.path, asked.user, client_host(scope), asked.exclude)
        ticket = await self._files.appending.append(wanted)
        extended = ExtendFile(asked.path, ticket.token)
        return self._redirect(asked, scope, extended, ticket)

    def _redirect(self, asked: Redirected, scope: Scope, wanted: Wanted, ticket: _Ticket, **extra: str) -> Answer:
        caller, proxy_pass = caller_of(scope), None
        delegation = delegation_of(scope) if caller is not None and caller.via is Via.DELEGATION else None
        if caller is not None and effective_user_of(scope) is not None:
            proxy_pass = self._files.proxy_pass(caller.user, wanted.token)
        trace = current_or_new()
        url = location(
            wanted,
            scope["scheme"],
            ticket.http_host,
            ticket.http_port,
            delegation,
            proxy_pass,
            trace.id,
            trace.span,
        )
        if asked.direct:
            return json_answer({"Location": url}, 200, **extra)
        return empty_answer(307, location=url, **extra)

    # -- delegation tokens -------------------------------------------------------------------------

    async def _get_delegation_token(self, asked: GetDelegationToken, scope: Scope) -> Answer:
        caller = caller_of(scope)
        if self._delegation is None or caller is None:
            # HDFS without security answers in the same way, and its clients continue without a token.
            return json_answer({"Token": None})
        service = asked.service or _service(scope)
        token = await self._delegation.give(caller, asked.user, asked.renewer, service, asked.kind or KIND)
        return json_answer({"Token": {"urlString": token}})

    async def _renew_delegation_token(self, asked: RenewDelegationToken, _scope: Scope) -> Answer:
        return json_answer({"long": await self._delegation_tokens().renew(asked.user, asked.token)})

    async def _cancel_delegation_token(self, asked: CancelDelegationToken, _scope: Scope) -> Answer:
        await self._delegation_tokens().cancel(asked.user, asked.token)
        return empty_answer()

    def _delegation_tokens(self) -> DelegationTokens:
        if self._delegation is None:
            raise Unsupported("this coordinator believes names (--authentication simple): it has given no tokens")
        return self._delegation


def _service(scope: Scope) -> str:
    """Return a token's service as Hadoop's client names it: the address that the client connected to."""
    host, port = scope["server"] or ("", None)
    return f"{host}:{port}" if port is not None else ""
