"""Lines of services' logs: machine-readable JSON, with the id of the request."""

from __future__ import annotations

import json
import logging

import msgspec
import pytest

from peacefs.protocol.frames import FrameReader, encode
from peacefs.protocol.messages import Mkdirs, Packet, WriteChunk
from peacefs.protocol.trace_context import TraceContext, context_of, current_id, is_well_formed, serving, stamped
from peacefs.service.log_formats import formatter
from peacefs.service.log_style import LogFormat

_CHUNK = WriteChunk("token", 7, 8, b"sums", last=True)


def _record(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("peacefs.datanode", logging.WARNING, __file__, 1, message, arguments, None)


@pytest.mark.parametrize("name", ["/a\n{}", 'quote"', "\x1b[2J", "\u2028", "\ud800"])
def test_log_as_json_is_one_object_a_line_whatever_names_are_in_it(name: str) -> None:
    line = formatter(LogFormat.JSON, "datanode").format(_record("%s is full", name))
    assert line.isascii() and line.isprintable()
    fields = json.loads(line)
    assert fields["message"] == f"{name} is full"
    assert (fields["level"], fields["logger"], fields["service"]) == ("WARNING", "peacefs.datanode", "datanode")
    assert fields["time"].endswith("+00:00") and "request" not in fields and "exception" not in fields


def test_log_as_json_has_the_traceback_in_a_field() -> None:
    try:
        raise ValueError("a bug")
    except ValueError as error:
        fault = (type(error), error, error.__traceback__)
    record = logging.LogRecord("peacefs", logging.ERROR, __file__, 1, "it failed", (), fault)
    line = formatter(LogFormat.JSON, "coordinator").format(record)
    assert line.isprintable() and json.loads(line)["exception"].endswith("ValueError: a bug")


def test_log_line_bears_the_id_of_the_request_that_it_concerns() -> None:
    with serving(TraceContext("nightly-42")):
        text = formatter(LogFormat.TEXT, "datanode").format(_record("disk full"))
        fields = json.loads(formatter(LogFormat.JSON, "datanode").format(_record("disk full")))
        with serving(None):
            assert current_id() == ""
    assert text.endswith("disk full [nightly-42]") and fields["request"] == "nightly-42"
    assert formatter(LogFormat.TEXT, "datanode").format(_record("disk full")).endswith("disk full")


def test_trace_goes_with_what_asks_and_costs_other_messages_nothing() -> None:
    assert stamped(_CHUNK) is _CHUNK
    with serving(TraceContext("mine")):
        asked = stamped(_CHUNK)
        assert asked == msgspec.structs.replace(_CHUNK, trace="mine")
        assert stamped(asked) is asked
        packet = Packet(0, b"sums")
        assert stamped(packet) is packet
    [frame] = FrameReader().feed(encode(asked))
    assert context_of(frame.message).id == "mine"


class _OlderWriteChunk(msgspec.Struct, frozen=True, tag="WriteChunk", omit_defaults=True):
    """The message as an older release knew it, without a trace."""

    token: str
    chunk: int
    version: int
    sums: bytes
    last: bool = False


def test_trace_is_passed_over_by_an_older_peer_and_missed_by_nobody_in_its_messages() -> None:
    older = _OlderWriteChunk("token", 7, 8, b"sums", True)
    traced = msgspec.msgpack.encode(msgspec.structs.replace(_CHUNK, trace="mine"))
    assert msgspec.msgpack.decode(traced, type=_OlderWriteChunk) == older
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(older), type=WriteChunk) == _CHUNK
    # A message without a trace has the same bytes as before.
    assert msgspec.msgpack.encode(_CHUNK) == msgspec.msgpack.encode(older)


@pytest.mark.parametrize("hostile", ["", "a b", "a\nb", "x" * 65, "-x", "\x00", "é", "a\n"])
def test_trace_of_a_peer_that_is_hostile_is_replaced(hostile: str) -> None:
    asked = Mkdirs("/a", "alice", permission=0o755, request_id="once", trace=hostile)
    assert not is_well_formed(hostile)
    found = context_of(asked).id
    assert found != hostile and is_well_formed(found)
