"""OpenDAL's WebHDFS service, a client that shares no code with Hadoop's, against a model in memory.

Runs where the Python package `opendal` is installed, or named:

    python -m pip install --no-deps --target opendal opendal
    PYTHONPATH=opendal python -m pytest tests/webhdfs/test_opendal.py
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from peacefs.client.local_cluster.cluster import LocalCluster

opendal = pytest.importorskip("opendal")
pytestmark = pytest.mark.cluster

SIZES = (0, 1, 4095, 70_000, 3_000_000)


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    certifi = pytest.importorskip("certifi")
    with (
        pytest.MonkeyPatch.context() as environment,
        LocalCluster(tmp_path_factory.mktemp("opendal"), datanodes=3, port=0) as cluster,
    ):
        # OpenDAL's HTTP client wants certificates, though it speaks plain HTTP here.
        environment.setenv("SSL_CERT_FILE", certifi.where())
        yield opendal.Operator("webhdfs", endpoint=cluster.http_address, root="/opendal")


def test_opendal_reads_lists_and_deletes_what_it_has_written(operator: Any) -> None:
    rng = random.Random(46)
    model = {f"tables/{size}/part {size} ü": rng.randbytes(size) for size in SIZES}
    for path, data in model.items():
        operator.write(path, data)
    for path, data in model.items():
        assert bytes(operator.read(path)) == data
        assert operator.stat(path).content_length == len(data)
    listed = {entry.path for entry in operator.scan("tables/") if not entry.path.endswith("/")}
    assert listed == set(model)
    # A file that is written again is replaced as a whole.
    again, path = rng.randbytes(5000), f"tables/70000/part {70_000} ü"
    operator.write(path, again)
    with operator.open(path, "rb") as file:
        assert file.read(1000) == again[:1000]
        file.seek(4000)
        assert file.read() == again[4000:]
    operator.delete(path)
    with pytest.raises(opendal.exceptions.NotFound):
        operator.stat(path)
    operator.remove_all("tables/")
    assert not [entry.path for entry in operator.scan("tables/") if not entry.path.endswith("/")]


def test_opendal_refuses_to_read_what_is_not_there(operator: Any) -> None:
    with pytest.raises(opendal.exceptions.NotFound):
        operator.read("nothing/here")


def test_opendal_makes_directories(operator: Any) -> None:
    operator.create_dir("made/of/it/")
    assert operator.stat("made/of/it/").mode.is_dir()
