"""Any bytes of a peer are either a message or a protocol violation, never an internal error."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from peacefs.protocol.errors import ProtocolViolation
from peacefs.protocol.frames import Prefix, decode_message, encode
from peacefs.protocol.messages import GetLayout, Message

_PREFIX_CRC = 7
_MESSAGE = GetLayout("a token as long as tokens are")
_BODY = msgspec.msgpack.encode(_MESSAGE)


def decoded(body: bytes) -> Message:
    prefix = Prefix(0, len(body), 0, crc32c(body, _PREFIX_CRC), _PREFIX_CRC)
    return decode_message(prefix, body)


@given(at=st.integers(0, len(_BODY) - 1), put=st.binary(max_size=4), dropped=st.integers(0, 4))
@example(at=len(_BODY) - 1, put=b"\xb4", dropped=1)
def test_a_body_that_was_tampered_with_is_a_message_or_a_violation(at: int, put: bytes, dropped: int) -> None:
    with contextlib.suppress(ProtocolViolation):
        decoded(_BODY[:at] + put + _BODY[at + dropped :])


def test_text_that_is_no_utf_8_is_a_violation() -> None:
    assert encode(_MESSAGE).endswith(_BODY)
    assert decoded(_BODY) == _MESSAGE
    with pytest.raises(ProtocolViolation):
        decoded(_BODY[:-1] + b"\xb4")


def test_frame_nested_without_end_is_a_violation() -> None:
    beside = msgspec.msgpack.encode({"type": "GetLayout", "token": "t", "more": []})
    with pytest.raises(ProtocolViolation, match="cannot be decoded"):
        decoded(beside[:-1] + b"\x91" * 100_000 + b"\x90")
