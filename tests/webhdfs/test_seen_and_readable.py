"""A name is visible only after the coordinator knows a datanode that holds its data."""

from __future__ import annotations

import threading

import pytest

from peacefs.protocol.errors import ServiceUnready
from peacefs.protocol.messages import Completed, CompleteFile, WrittenChunk
from peacefs.protocol.new_file import NewFile


def completion(data, path: str, node: str) -> CompleteFile:
    """Return the completion of a file of one chunk, with a receipt from `node`."""
    ticket = data.names.served.run(data.names.files.writing.create(NewFile(path=path, user="alice"), None))
    chunk = ticket.allocated
    receipt = data.signer.receipt(node, chunk.chunk, chunk.version, 1, 7)
    return CompleteFile(ticket.token, [WrittenChunk(chunk.chunk, chunk.version, 1, 7, [receipt])])


def test_name_waits_for_a_datanode_that_holds_its_chunk(data):
    """This happens after a restart, if the writer returns before the datanode."""
    path = "/seen/late"
    asked, answers = completion(data, path, "dn-late"), []
    writer = threading.Thread(target=lambda: answers.append(data.names.call(asked, 30.0)))
    writer.start()
    # Each look is a separate request, which the loop handles while the completion waits.
    for _ in range(20):
        assert data.names.ask("GET", path, "GETFILESTATUS").status == 404
    data.names.register("dn-late", 1, 2)
    writer.join(60)
    assert isinstance(answers[0], Completed)
    assert data.names.ask("GET", path, "GETFILESTATUS").status == 200
    _token, layout, _status = data.names.served.run(data.names.files.reading.open_direct(path, "alice", None))
    assert [hop.node for hop in layout.chunks[0].replicas] == ["dn-late"]


def test_name_is_not_made_when_no_datanode_that_holds_it_comes(data, monkeypatch):
    path = "/seen/never"
    monkeypatch.setattr("peacefs.coordinator.operations.write.receipt_holder_timeout_s", 0.5)
    with pytest.raises(ServiceUnready, match="dn-never"):
        data.names.call(completion(data, path, "dn-never"), 30.0)
    assert data.names.ask("GET", path, "GETFILESTATUS").status == 404
