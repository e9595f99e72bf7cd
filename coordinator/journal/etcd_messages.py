"""The messages of etcd that a journal uses, with the fields that it uses.

Names and numbers of fields are those of etcd's `rpc.proto` and `kv.proto`, which never change. Where etcd has
several messages with the same fields, one stands for all of them.
"""

from __future__ import annotations

from typing import Annotated

from .protobuf import Message

#: What a comparison compares. The default is the version.
TARGET_VALUE = 3
SORT_ASCENDING, SORT_DESCENDING = 1, 2


class Nothing(Message, frozen=True):
    """A request without fields."""


class KeyValue(Message, frozen=True):
    key: Annotated[bytes, 1] = b""
    value: Annotated[bytes, 5] = b""
    lease: Annotated[int, 6] = 0


class Keys(Message, frozen=True):
    """Name the keys from `key` up to `range_end`, or `key` alone, to read or to delete them.

    `limit` and `sort_order` are for reading.
    """

    key: Annotated[bytes, 1] = b""
    range_end: Annotated[bytes, 2] = b""
    limit: Annotated[int, 3] = 0
    sort_order: Annotated[int, 5] = 0


class Range(Message, frozen=True):
    kvs: Annotated[tuple[KeyValue, ...], 2] = ()


class Put(Message, frozen=True):
    key: Annotated[bytes, 1] = b""
    value: Annotated[bytes, 2] = b""
    lease: Annotated[int, 3] = 0


class Compare(Message, frozen=True):
    """Require that a key has this `version` or this `value`. An absent key has version 0."""

    target: Annotated[int, 2] = 0
    key: Annotated[bytes, 3] = b""
    version: Annotated[int | None, 4] = None
    value: Annotated[bytes | None, 7] = None


class Operation(Message, frozen=True):
    """One operation: exactly one field is set."""

    request_range: Annotated[Keys | None, 1] = None
    request_put: Annotated[Put | None, 2] = None
    request_delete_range: Annotated[Keys | None, 3] = None


class Outcome(Message, frozen=True):
    """The answer to an operation. Only ranges are decoded."""

    response_range: Annotated[Range, 1] = Range()


class Txn(Message, frozen=True):
    """Carry out `success` if all comparisons hold, else `failure`, in one step."""

    compare: Annotated[tuple[Compare, ...], 1] = ()
    success: Annotated[tuple[Operation, ...], 2] = ()
    failure: Annotated[tuple[Operation, ...], 3] = ()


class TxnAnswer(Message, frozen=True):
    succeeded: Annotated[bool, 2] = False
    responses: Annotated[tuple[Outcome, ...], 3] = ()

    def pairs(self, at: int) -> tuple[KeyValue, ...]:
        """Return what a range of the transaction found. Raises IndexError."""
        return self.responses[at].response_range.kvs


class Revision(Message, frozen=True):
    revision: Annotated[int, 1] = 0


class LeaseTime(Message, frozen=True):
    TTL: Annotated[int, 1] = 0


class LeaseId(Message, frozen=True):
    ID: Annotated[int, 1] = 0


class Lease(Message, frozen=True):
    """A lease that was granted or kept alive. One that has ended has a TTL of 0."""

    ID: Annotated[int, 2] = 0
    TTL: Annotated[int, 3] = 0


class Header(Message, frozen=True):
    member_id: Annotated[int, 2] = 0
    revision: Annotated[int, 3] = 0


class Status(Message, frozen=True):
    """The status of a member. All other answers begin with the same header."""

    header: Annotated[Header, 1] = Header()
    leader: Annotated[int, 4] = 0


class EtcdMember(Message, frozen=True):
    ID: Annotated[int, 1] = 0
    clientURLs: Annotated[tuple[str, ...], 4] = ()


class EtcdMembers(Message, frozen=True):
    members: Annotated[tuple[EtcdMember, ...], 2] = ()


class Login(Message, frozen=True):
    name: Annotated[str, 1] = ""
    password: Annotated[str, 2] = ""


class Token(Message, frozen=True):
    token: Annotated[str, 2] = ""
