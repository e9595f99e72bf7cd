"""A flush without an answer is sent again as the same request, before anything else is done."""

from __future__ import annotations

import pytest

from peacefs.client.transfer.file_flusher import FileFlusher
from peacefs.client.transfer.write_grants import GrantClient
from peacefs.protocol.errors import PeerTimeout
from peacefs.protocol.messages import Completed, CompleteFile, Flushed, FlushFile, Message
from peacefs.runtime import effects as fx


def play(steps, answers):
    """Run a participant with these answers to its calls, in order; raise errors. Return its requests."""
    asked: list[Message] = []
    result = None
    try:
        while True:
            effect = steps.send(result) if not isinstance(result, Exception) else steps.throw(result)
            if isinstance(effect, fx.Call):
                asked.append(effect.message)
                result = answers.pop(0)
            else:
                assert isinstance(effect, fx.Now), effect
                result = 0.0
    except StopIteration:
        return asked


@pytest.fixture
def flusher():
    return FileFlusher("a token", None, 1 << 20, "ann", GrantClient("test", pushed=False))


def test_flush_without_an_answer_is_asked_for_again_before_the_next(flusher):
    away = PeerTimeout("the coordinator is away")
    with pytest.raises(PeerTimeout):
        play(flusher.flush(b""), [away])
    assert flusher.is_unanswered
    first, second = play(flusher.flush(b""), [Flushed("second", 0), Flushed("third", 0)])
    assert (first.token, second.token) == ("a token", "second")
    assert first.request_id != second.request_id
    assert not flusher.is_unanswered
    (end,) = play(flusher.complete(b""), [Completed(0)])
    assert end == CompleteFile("third", [])


def test_end_of_a_file_asks_for_its_last_flush_first(flusher):
    with pytest.raises(PeerTimeout):
        play(flusher.flush(b""), [PeerTimeout("away")])
    flush, end = play(flusher.complete(b""), [Flushed("new", 0), Completed(0)])
    assert isinstance(flush, FlushFile) and end == CompleteFile("new", [])


def test_name_is_published_without_replacing_anything(flusher):
    (wanted,) = play(flusher.publish_name(), [Flushed("new", 0)])
    assert wanted.unless_there and wanted.chunks == [] and flusher.has_lease
