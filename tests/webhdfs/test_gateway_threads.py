"""Bodies that a gateway writes without a separate thread, and bodies that get one."""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from peacefs.datanode.gateway.body_writer import gateway_threadless_bytes_max

from .conftest import DataSide, NameSide


@pytest.fixture
def data(tmp_path, signer):
    """Yield a datanode without data."""
    for kept in ("names", "data"):
        (tmp_path / kept).mkdir()
    names = NameSide(tmp_path / "names", signer)
    with contextlib.closing(names), names.served:
        side = DataSide("dn-1", tmp_path / "data", names, signer)
        with contextlib.closing(side), side.served:
            names.register("dn-1", side.server.address[1], side.port, side.process)
            yield side


def quick_threads():
    return {each for each in threading.enumerate() if each.name.startswith("gateway-quick")}


def test_threads_of_a_gateway_are_for_bodies_that_do_not_fit_a_frame(data):
    before = quick_threads()
    bodies = {f"/files/{size}": os.urandom(size) for size in (0, 1, 1024, gateway_threadless_bytes_max)}
    with ThreadPoolExecutor(4) as writers:
        assert {reply.status for reply in writers.map(data.write, bodies, bodies.values())} == {201}
    assert quick_threads() <= before
    bodies["/files/larger"] = os.urandom(gateway_threadless_bytes_max + 1)
    assert data.write("/files/larger", bodies["/files/larger"]).status == 201
    assert quick_threads() - before
    assert {path: data.read(path).body for path in bodies} == bodies


def test_body_without_a_thread_is_refused_as_any_other(data):
    assert data.write("/taken", b"first").status == 201
    redirect = data.names.ask("PUT", "/taken", "CREATE", overwrite="true")
    assert data.names.ask("DELETE", "/taken", "DELETE").status == 200
    assert data.names.ask("PUT", "/taken", "MKDIRS").status == 200
    refused = data.follow("PUT", redirect, b"second")
    assert refused.status == 403, refused
    assert refused.json["RemoteException"]["exception"] == "FileAlreadyExistsException"
