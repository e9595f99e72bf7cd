"""The coordinator's answers to renewals by readers: their file, their chunk, their present permissions."""

from __future__ import annotations

import time

import msgspec
import pytest
from webhdfs.conftest import DataSide

from peacefs.protocol.errors import AccessDenied, FileChanged, FileNotFound, TokenExpired
from peacefs.protocol.messages import GetLayout, Layout
from peacefs.protocol.tokens import ChunkRead, FileRead


def opened(data: DataSide, path: str) -> tuple[FileRead, Layout]:
    """Return a file of one chunk that was just opened."""
    assert data.write(path, b"x").status == 201
    names = data.names
    token, layout, _status = names.served.run(names.files.reading.open_direct(path, "alice", None))
    return data.signer.verify(token, FileRead, time.time()), layout


def asked(data: DataSide, read_token: FileRead, held: str = "") -> Layout:
    answer = data.names.call(GetLayout(data.signer.sign(read_token), held), 10.0)
    assert isinstance(answer, Layout)
    return answer


def test_an_old_token_is_renewed_and_so_are_those_of_its_chunks(data):
    read_token, layout = opened(data, "/renewed")
    old = msgspec.structs.replace(read_token, expires_s=1.0)
    (chunk,) = layout.chunks
    late = data.signer.sign(ChunkRead(1.0, chunk.chunk, read_token.inode))
    for answer in (asked(data, old), asked(data, old, late)):
        now_s = time.time()
        assert data.signer.verify(answer.token, FileRead, now_s).inode == read_token.inode
        (renewed,) = answer.chunks
        assert data.signer.verify(renewed.token, ChunkRead, now_s).chunk == chunk.chunk
        assert (renewed.version, renewed.replicas) == (chunk.version, chunk.replicas)


def test_a_token_that_was_not_used_for_so_long_is_not_renewed(data):
    read_token, _layout = opened(data, "/forgotten")
    with pytest.raises(TokenExpired, match="open it again"):
        asked(data, msgspec.structs.replace(read_token, renewable_until_s=time.time() - 1.0))


def test_a_chunk_of_another_file_is_not_given_with_this_one(data):
    read_token, _layout = opened(data, "/mine")
    _other, layout = opened(data, "/theirs")
    with pytest.raises(AccessDenied, match="another file"):
        asked(data, read_token, layout.chunks[0].token)


def test_chunk_that_is_gone_means_that_the_file_has_changed(data):
    read_token, _layout = opened(data, "/cut")
    with pytest.raises(FileChanged, match="replaced"):
        asked(data, read_token, data.signer.sign(ChunkRead(1.0, 987654321, read_token.inode)))


def test_a_deleted_file_is_not_found(data):
    read_token, layout = opened(data, "/deleted")
    data.names.ask("DELETE", "/deleted", "DELETE")
    data.names.served.run(data.names.files.names.reclaim())
    for held in ("", layout.chunks[0].token):
        answer = asked(data, read_token, held)
        assert answer.chunks[0].replicas == layout.chunks[0].replicas, "its readers have a moment to finish"
        assert data.signer.verify(answer.token, FileRead, 0.0) == read_token, "and get no new leave"
    for held in ("", layout.chunks[0].token):
        with pytest.raises(FileNotFound):
            asked(data, msgspec.structs.replace(read_token, expires_s=1.0), held)
    data.names.drop_freed()
    for held in ("", layout.chunks[0].token):
        with pytest.raises(FileNotFound):
            asked(data, read_token, held)
