"""The retry cache: a repeated request gets the first answer, and changes nothing.

Each request has an id that its client chose. Its answer is stored in the commit that made the change. So a client
that repeats the request gets the same answer, even after the coordinator was killed and started again. A failed
request has changed nothing, so its repetition counts as new.

`reclaim.forget_answers_step` decides how long answers are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from peacefs.coordinator.metadata.model import ChunkRecord
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import BadRequest

request_id_characters_max: Final = 128


#: The replies that can be cached: success, a length, a path, or nothing.
A = TypeVar("A", bound=bool | int | str | None)


class RequestKey(msgspec.Struct, frozen=True):
    """A request under the id that its client gave it. A request without an id never counts as repeated.

    `what` identifies the request's content, as values that MessagePack can encode.
    """

    request_id: str
    what: tuple[Any, ...]

    def fingerprint(self) -> bytes:
        return hashlib.blake2b(msgspec.msgpack.encode(self.what), digest_size=16).digest()


class Applied(msgspec.Struct, Generic[A], frozen=True):
    """The answer of a change, and the chunks for the caller to process; none if it was done `before`."""

    answer: A
    chunks: Sequence[ChunkRecord] = ()
    before: bool = False


class _CachedReply(msgspec.Struct, frozen=True, array_like=True):
    fingerprint: bytes
    answer: bool | int | str | None


def check_request_id(request_id: str) -> None:
    """Check the form of a request id. Raises BadRequest."""
    if len(request_id) > request_id_characters_max:
        raise BadRequest(f"a request id of {len(request_id)} characters is over {request_id_characters_max}")


def cached_reply(reader: Reader, key: RequestKey) -> Applied[Any] | None:
    """Return the earlier reply to the request. Raises BadRequest if its id was used for another request."""
    if not key.request_id:
        return None
    check_request_id(key.request_id)
    stored = reader.answer(key.request_id)
    if stored is None:
        return None
    remembered = msgspec.msgpack.decode(stored, type=_CachedReply)
    if remembered.fingerprint != key.fingerprint():
        raise BadRequest(
            f"the request id {key.request_id} has been used for another request; give each an id of its own"
        )
    return Applied(remembered.answer, before=True)


def run_once(
    tx: Transaction, key: RequestKey, now_ms: int, change: Callable[[Transaction], Applied[A]]
) -> Applied[A]:
    """Make the change and cache its answer, unless that was done before. Raises as `cached_reply` does."""
    first = cached_reply(tx, key)
    if first is not None:
        return first
    applied = change(tx)
    cache_reply(tx, key, applied.answer, now_ms)
    return applied


def cache_reply(tx: Transaction, key: RequestKey, answer: bool | int | str | None, now_ms: int) -> None:
    """Cache the answer to a request that `cached_reply` does not know."""
    if key.request_id:
        tx.remember(key.request_id, _encoded(key, answer), now_ms)


def reserve_reply(
    tx: Transaction, key: RequestKey, answer: bool | int | str | None, now_ms: int
) -> Applied[Any] | None:
    """Store an answer before the change is made. If the request has an answer already, return that instead.

    If the change raises, the stored answer is undone with it. Raises as `cached_reply` does.
    """
    first = cached_reply(tx, key)
    if first is None:
        cache_reply(tx, key, answer, now_ms)
    return first


def _encoded(key: RequestKey, answer: bool | int | str | None) -> bytes:
    return msgspec.msgpack.encode(_CachedReply(key.fingerprint(), answer))
