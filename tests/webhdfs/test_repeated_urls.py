"""The second-step URL of a CREATE used again: bodies never share a chunk, so each can be undone."""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from support.waiting import wait_until

from peacefs.datanode.gateway.one_time_chunks import OneTimeChunks
from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import Failure, Hop, WriteChunk
from peacefs.protocol.tokens import ChunkWrite, OneTimeChunk, Signer
from peacefs.runtime import effects as fx

SIGNER = Signer(b"a secret of the tests")


@pytest.fixture
def path(request):
    """Return a file name for this test."""
    return "/" + re.sub(r"\W", "-", request.node.name)


def create(data, path, **query):
    redirect = data.names.ask("PUT", path, "CREATE", **query)
    assert redirect.status == 307, redirect
    return redirect


def permit_of(redirect) -> str:
    """Return the URL's token to write the first chunk."""
    (token,) = parse_qs(urlsplit(redirect.headers["location"]).query)["first"]
    return token


def first_of(redirect) -> OneTimeChunk:
    return SIGNER.verify(permit_of(redirect), OneTimeChunk, 0.0)


def stored(data):
    return {replica.chunk for replica in data.store.replicas()}


@pytest.mark.evidence("body-sent-twice")
def test_a_body_that_is_sent_again_is_answered_as_the_first_and_leaves_nothing(data, path):
    """A client or a proxy that missed the answer sends the body again."""
    before, redirect = stored(data), create(data, path)
    assert data.follow("PUT", redirect, b"body").status == 201
    (published,) = stored(data) - before
    assert published == first_of(redirect).chunk
    assert data.follow("PUT", redirect, b"body").status == 201
    (spare,) = stored(data) - before - {published}
    assert data.names.gives_up(spare) and not data.names.gives_up(published)
    assert data.read(path).body == b"body"


def test_chunks_of_a_refused_file_are_abandoned_and_the_file_there_is_not(data, path):
    first, second = create(data, path), create(data, path)
    assert data.follow("PUT", first, b"first").status == 201
    assert data.follow("PUT", second, b"second").status == 403
    assert data.names.gives_up(first_of(second).chunk) and not data.names.gives_up(first_of(first).chunk)
    assert data.read(path).body == b"first"
    # A repeated request gets the same answer, and leaves nothing either.
    before = stored(data)
    assert data.follow("PUT", second, b"second").status == 403
    assert all(data.names.gives_up(chunk) for chunk in stored(data) - before)


@pytest.mark.evidence("body-sent-twice")
def test_after_a_body_that_was_cut_off_the_same_url_takes_another(data, path):
    redirect = create(data, path)
    with data.served.connect() as wire:
        target = data.target(redirect)
        wire.sendall(f"PUT {target} HTTP/1.1\r\nhost: x\r\ncontent-length: {4 * MIB}\r\n\r\n".encode())
        wire.sendall(bytes(3 * MIB))
        wait_until(lambda: data.names.gives_up(first_of(redirect).chunk), "a large body has no use for it")
    content = os.urandom(1000)
    assert data.follow("PUT", redirect, content).status == 201
    assert data.read(path).body == content


@pytest.mark.evidence("body-sent-twice")
def test_a_url_that_was_made_for_an_earlier_process_of_the_datanode_is_as_good(data, path):
    """The earlier process may have used the URL, but nobody remembers."""
    ports = data.server.address[1], data.port
    data.names.register("dn-1", *ports, process="the one before")
    redirect = create(data, path)
    data.names.register("dn-1", *ports, process=data.process)
    assert data.follow("PUT", redirect, b"body").status == 201
    assert first_of(redirect).chunk not in stored(data)
    assert data.read(path).body == b"body"


def test_token_in_the_url_is_taken_by_no_data_server(data, path):
    redirect = create(data, path)
    first = first_of(redirect)
    connection = data.driver.run(fx.connect(data.server.address, "dn-1"))
    opening = WriteChunk(permit_of(redirect), first.chunk, first.version, block_checksums(b"x"), last=True)
    data.driver.run(fx.send(connection, opening, b"x", timeout_s=60.0))
    answer = data.driver.run(fx.receive(connection, timeout_s=60.0)).message
    data.driver.run(fx.close(connection))
    assert isinstance(answer, Failure) and answer.code == "AccessDenied"
    assert first.chunk not in stored(data)


def test_a_gateway_remembers_so_many_and_takes_none_that_it_may_have_forgotten(signer):
    chunks = OneTimeChunks(signer, "p", remembered_max=3)

    def taken(number):
        return chunks.take(signer.sign(OneTimeChunk(1e12, number, 7, [Hop("n", "h", 1)], "p")))

    for number in (10, 13, 11, 14, 12):
        got = taken(number)
        assert signer.verify(got.token, ChunkWrite, 0.0) == ChunkWrite(1e12, number, 7, [Hop("n", "h", 1)])
    assert [taken(number) for number in (10, 13, 11, 14, 12, 9)] == [None] * 6
    assert taken(15) is not None
    with pytest.raises(AccessDenied):
        chunks.take(signer.sign(ChunkWrite(1e12, 16, 7, [Hop("n", "h", 1)])))
