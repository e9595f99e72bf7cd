"""Requests that are asked again because their answer was lost: they get the first answer, and change nothing.

A client gives each request an id of its own. What it was answered is stored in the commit that did it, so that
whoever asks again, of a coordinator that has been killed and started in between as well, hears the same. A request
that failed has changed nothing; asked again it is asked for the first time.

How long answers are kept: see `forget_answers_step` in `reclaim`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from peacefs.coordinator.metadata.model import ChunkRecord
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import BadRequest

request_id_characters_max: Final = 128


#: The replies that can be cached: success, a length, a path, or nothing worth saying.
A = TypeVar("A", bound=bool | int | str | None)


class RequestKey(NamedTuple):
    """A request under the id that its client gave it; without one it is never taken for a repetition.

    `what` is all that makes it this request and no other, as what MessagePack can encode.
    """

    request_id: str
    what: tuple[Any, ...]

    def fingerprint(self) -> bytes:
        return hashlib.blake2b(msgspec.msgpack.encode(self.what), digest_size=16).digest()


class Applied(NamedTuple, Generic[A]):
    """A change's answer, and the chunks that the caller is to act upon; none when it was done `before`."""

    answer: A
    chunks: Sequence[ChunkRecord] = ()
    before: bool = False


class _CachedReply(msgspec.Struct, frozen=True, array_like=True):
    fingerprint: bytes
    answer: bool | int | str | None


def check_request_id(request_id: str) -> None:
    """Raises BadRequest."""
    if len(request_id) > request_id_characters_max:
        raise BadRequest(f"a request id of {len(request_id)} characters is over {request_id_characters_max}")


def cached_reply(reader: Reader, key: RequestKey) -> Applied[Any] | None:
    """Return the earlier reply to the request. Raises BadRequest for another request under the same id."""
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
    """Makes the change and remembers its answer, unless that was done before. Raises as `cached_reply` does."""
    first = cached_reply(tx, key)
    if first is not None:
        return first
    applied = change(tx)
    cache_reply(tx, key, applied.answer, now_ms)
    return applied


def cache_reply(tx: Transaction, key: RequestKey, answer: bool | int | str | None, now_ms: int) -> None:
    """Keeps the answer to a request that `cached_reply` does not know."""
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
