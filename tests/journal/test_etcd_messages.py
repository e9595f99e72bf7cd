"""etcd's messages as we encode and decode them, compared with Google's protobuf library."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.etcd_wire import MESSAGES
from support.long_runs import often

from peacefs.coordinator.journal import etcd_messages as ours
from peacefs.coordinator.journal.protobuf import MalformedMessage, Message

#: Our classes by the names of etcd's messages.
_REQUESTS = {
    "RangeRequest": ours.Keys,
    "PutRequest": ours.Put,
    "Compare": ours.Compare,
    "RequestOp": ours.Operation,
    "TxnRequest": ours.Txn,
    "CompactionRequest": ours.Revision,
    "LeaseGrantRequest": ours.LeaseTime,
    "LeaseRevokeRequest": ours.LeaseId,
    "LeaseKeepAliveRequest": ours.LeaseId,
    "AuthenticateRequest": ours.Login,
}
_ANSWERS = {
    "RangeResponse": ours.Range,
    "TxnResponse": ours.TxnAnswer,
    "DeleteRangeResponse": ours.Status,
    "LeaseGrantResponse": ours.Lease,
    "LeaseKeepAliveResponse": ours.Lease,
    "StatusResponse": ours.Status,
    "MemberListResponse": ours.EtcdMembers,
    "AuthenticateResponse": ours.Token,
}
_EXAMPLES = often(40, 2000)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_KEYS = st.builds(ours.Keys, st.binary(), st.binary(), _INT64, st.integers(0, 2))
_COMPARES = st.one_of(
    st.builds(ours.Compare, key=st.binary(), version=_INT64),
    st.builds(ours.Compare, st.just(ours.TARGET_VALUE), st.binary(), value=st.binary()),
)
_PUTS = st.builds(ours.Put, st.binary(), st.binary(max_size=300), _INT64)
_OPERATIONS = st.one_of(
    st.builds(ours.Operation, request_range=_KEYS),
    st.builds(ours.Operation, request_put=_PUTS),
    # A deletion has no limit and no order.
    st.builds(ours.Operation, request_delete_range=st.builds(ours.Keys, st.binary(), st.binary())),
)
_TXNS = st.builds(
    ours.Txn,
    st.lists(_COMPARES, max_size=3).map(tuple),
    st.lists(_OPERATIONS, max_size=3).map(tuple),
    st.lists(_OPERATIONS, max_size=3).map(tuple),
)
_SENT = st.one_of(
    st.tuples(st.just("RangeRequest"), _KEYS),
    st.tuples(st.just("TxnRequest"), _TXNS),
    st.tuples(st.just("LeaseKeepAliveRequest"), st.builds(ours.LeaseId, _INT64)),
    st.tuples(st.just("AuthenticateRequest"), st.builds(ours.Login, st.text(), st.text())),
)


def is_same(ours: object, theirs: Any) -> bool:
    """Compare each field of our class with the other library's field of that name."""
    if isinstance(ours, tuple):
        return len(ours) == len(theirs) and all(map(is_same, ours, theirs))
    if not isinstance(ours, Message):
        return bool(ours == theirs)
    return all(_is_same_field(getattr(ours, name), theirs, name) for name in ours.__struct_fields__)


def _is_same_field(ours: object, theirs: Any, name: str) -> bool:
    if name not in theirs.DESCRIPTOR.fields_by_name:
        return not ours
    if ours is None:
        return not theirs.HasField(name)
    return is_same(ours, getattr(theirs, name))


@pytest.mark.parametrize(("name", "message"), [*_REQUESTS.items(), *_ANSWERS.items()])
def test_messages_without_fields_are_empty(name: str, message: type[Message]) -> None:
    empty = MESSAGES[name]()
    assert message().encode() == empty.SerializeToString() == b""
    assert is_same(message.decode(b""), empty)


@given(_SENT)
@settings(max_examples=_EXAMPLES, deadline=None, print_blob=True)
def test_requests_to_etcd_are_read_as_they_were_meant(sent: tuple[str, Message]) -> None:
    name, request = sent
    read = MESSAGES[name].FromString(request.encode())
    assert is_same(request, read)
    # No fields were written besides those that the reader knows.
    again = MESSAGES[name]()
    again.CopyFrom(read)
    again.DiscardUnknownFields()
    assert again == read


@st.composite
def _answers(draw: st.DrawFn, name: str = "") -> Any:
    """Return an answer as etcd may give it, with unknown fields."""
    answer = MESSAGES[name or draw(st.sampled_from(sorted(_ANSWERS)))]()
    for field in answer.DESCRIPTOR.fields:
        if not draw(st.booleans()):
            continue
        kinds: dict[int, st.SearchStrategy[Any]] = {
            field.TYPE_INT64: _INT64,
            field.TYPE_UINT64: st.integers(0, 2**63 - 1),
            field.TYPE_BOOL: st.booleans(),
            field.TYPE_STRING: st.text(),
            field.TYPE_BYTES: st.binary(max_size=300),
        }
        if field.type == field.TYPE_MESSAGE:
            kinds[field.type] = _answers(field.message_type.name)
        if isinstance(getattr(answer, field.name), int | str | bytes):
            setattr(answer, field.name, draw(kinds[field.type]))
        elif field.is_repeated:
            getattr(answer, field.name).extend(draw(st.lists(kinds[field.type], max_size=3)))
        else:
            getattr(answer, field.name).CopyFrom(draw(kinds[field.type]))
    return answer


@given(_answers())
@settings(max_examples=_EXAMPLES, deadline=None, print_blob=True)
def test_answers_of_etcd_are_read_as_they_were_meant(answer: Any) -> None:
    assert is_same(_ANSWERS[answer.DESCRIPTOR.name].decode(answer.SerializeToString()), answer)


@given(_answers(), st.data())
@settings(max_examples=_EXAMPLES, deadline=None, print_blob=True)
def test_answers_that_are_damaged_are_read_or_refused(answer: Any, data: st.DataObject) -> None:
    sent = bytearray(answer.SerializeToString())
    if sent:
        sent[data.draw(st.integers(0, len(sent) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(MalformedMessage):
        _ANSWERS[answer.DESCRIPTOR.name].decode(bytes(sent[: data.draw(st.integers(0, len(sent)))]))
