"""A gateway connects only to addresses that the coordinator has signed, so strangers get no handshake."""

from __future__ import annotations

import base64
import os
import re
import time
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stranger import listening

from peacefs.protocol.limits import MIB, small_chunk_bytes_max
from peacefs.protocol.messages import Allocated, ChunkLayout, Hop, Layout
from peacefs.protocol.tokens import ChunkRead, ChunkWrite, FileRead, OneTimeChunk

ACCESS = "org.apache.hadoop.security.AccessControlException"
#: No datanode has this chunk.
ELSEWHERE = 12345


@pytest.fixture
def path(request):
    """Return a file name for this test."""
    return "/" + re.sub(r"\W", "-", request.node.name)


@pytest.fixture
def stranger():
    with listening() as somebody:
        yield somebody


def packed(value):
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(value)).rstrip(b"=").decode()


def parameter(redirect, name):
    (text,) = parse_qs(urlsplit(redirect.headers["location"]).query)[name]
    return text


def flipped(text, bit):
    """Return a token with one bit flipped."""
    raw = bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    raw[bit // 8 % len(raw)] ^= 1 << bit % 8
    return base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode()


def read_of(data, path):
    """Return a valid URL of a small file, and its token."""
    data.write(path, b"what is in the file")
    redirect = data.names.ask("GET", path, "OPEN")
    return data.target(redirect), parameter(redirect, "token")


@pytest.mark.evidence("no-strange-address")
def test_a_layout_that_a_client_writes_into_the_url_is_passed_over(data, path, stranger):
    """The attack: a user who may read one file made the gateway prove the secret to any address."""
    target, _token = read_of(data, path)
    permit = data.signer.sign(ChunkRead(time.time() + 60, ELSEWHERE))
    layout = packed(Layout(19, [ChunkLayout(ELSEWHERE, 1, 19, permit, [stranger.hop("dn-9")])]))
    for url in (f"{target}&layout={layout}", target.replace("&", f"&layout={layout}&", 1)):
        assert data.served.request("GET", url).body == b"what is in the file"
    assert stranger.connections == 0


def test_an_address_in_a_signed_token_is_connected_to(data, path, stranger):
    """This shows that the other tests here could fail."""
    chunk = ChunkLayout(ELSEWHERE, 1, small_chunk_bytes_max + 1, "", [stranger.hop("dn-9")])
    target, token = read_of(data, path)
    permit = data.signer.verify(token, FileRead, 0.0)
    signed = data.signer.sign(msgspec.structs.replace(permit, chunks=[chunk]))
    assert data.served.request("GET", target.replace(token, signed)).status != 200
    assert stranger.connections > 0


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": []},
        {"chunk": ELSEWHERE + 1},
        {"version": 2},
        {"length": 5},
    ],
    ids=["another address", "another chunk", "another version", "another length"],
)
def test_token_of_a_chunk_cannot_be_changed(data, path, stranger, change):
    target, token = read_of(data, path)
    permit = data.signer.verify(token, FileRead, 0.0)
    (chunk,) = permit.chunks
    forged = msgspec.structs.replace(chunk, **{"replicas": [stranger.hop("dn-9")], **change})
    if "replicas" in change:
        forged = msgspec.structs.replace(forged, replicas=[stranger.hop("dn-1"), *chunk.replicas])
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    body = msgspec.msgpack.encode(msgspec.structs.replace(permit, chunks=[forged]))
    changed = base64.urlsafe_b64encode(body + raw[-16:]).rstrip(b"=").decode()
    answer = data.served.request("GET", target.replace(token, changed))
    assert answer.error[:2] == (403, ACCESS) and "\n" not in answer.error[2]
    assert stranger.connections == 0


@pytest.mark.evidence("no-strange-address")
def test_no_bit_of_a_read_token_or_a_first_chunk_may_be_another(data, path, stranger):
    target, token = read_of(data, path)
    permit = data.signer.verify(token, FileRead, 0.0)
    chunk = ChunkLayout(ELSEWHERE, 1, small_chunk_bytes_max + 1, "", [stranger.hop("dn-9")])
    reading = data.signer.sign(msgspec.structs.replace(permit, chunks=[chunk]))
    create = data.names.ask("PUT", path + "-new", "CREATE")
    first = parameter(create, "first")
    given_first = data.signer.verify_even_late(first, OneTimeChunk)
    route = [data.signer.verify_even_late(first, OneTimeChunk).pipeline[0], stranger.hop("dn-9")]
    writing = data.signer.sign(msgspec.structs.replace(given_first, pipeline=route))

    @settings(max_examples=150, deadline=None)
    @given(bit=st.integers(0, 4000))
    def refused(bit):
        asked = data.served.request("GET", target.replace(token, flipped(reading, bit)))
        assert asked.error[:2] == (403, ACCESS) and "\n" not in asked.error[2]
        sent = data.served.request("PUT", data.target(create).replace(first, flipped(writing, bit)), b"body")
        assert sent.error[:2] == (403, ACCESS) and "\n" not in sent.error[2]

    refused()
    assert stranger.connections == 0
    assert data.names.ask("GET", path + "-new", "GETFILESTATUS").status == 404


def test_a_pipeline_that_a_client_writes_into_the_url_of_a_create_is_refused(data, path, stranger):
    create = data.names.ask("PUT", path, "CREATE")
    first = parameter(create, "first")
    given_first = data.signer.verify_even_late(first, OneTimeChunk)
    hops = [given_first.pipeline[0], stranger.hop("dn-9")]
    for forged in (
        packed(Allocated(given_first.chunk, given_first.version, hops, first)),
        data.signer.sign(ChunkWrite(1e12, given_first.chunk, given_first.version, hops)),
    ):
        answer = data.served.request("PUT", data.target(create).replace(first, forged), b"body")
        assert answer.error[:2] == (403, ACCESS)
    assert data.follow("PUT", create, b"body").status == 201, "and the good one is still good"
    assert stranger.connections == 0


def test_the_coordinator_s_name_in_a_url_is_no_address_to_connect_to(data, path, stranger):
    """It is only returned, as the authority of the new file's URL."""
    hop = stranger.hop("")
    create = data.target(data.names.ask("PUT", path, "CREATE"))
    with_stranger = re.sub(r"namenoderpcaddress=[^&]*", f"namenoderpcaddress={hop.host}:{hop.port}", create)
    answer = data.served.request("PUT", with_stranger, os.urandom(2 * MIB))
    assert answer.status == 201
    assert answer.headers["location"] == f"webhdfs://{hop.host}:{hop.port}{path}"
    assert stranger.connections == 0


def test_a_url_is_no_longer_for_its_signed_layout(data, path):
    """With three replicas. Hadoop's client sends the whole URL at each seek."""
    target, token = read_of(data, path)
    permit = data.signer.verify(token, FileRead, 0.0)
    hops = [Hop(f"dn-{number:012x}", f"10.20.30.{number}", 9866) for number in (11, 12, 13)]
    chunks = [msgspec.structs.replace(chunk, replicas=hops) for chunk in permit.chunks]
    url = target.replace(token, data.signer.sign(msgspec.structs.replace(permit, chunks=chunks)))
    assert len(url) - 2 * len(path) < 400
