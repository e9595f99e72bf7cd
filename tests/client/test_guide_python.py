"""The Python examples of README and the guides work as described, on a cluster."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import GUIDE_ADDRESS, Page, guides

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = pytest.mark.cluster

_BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in guides()
    for number, block in enumerate(page.blocks("python"))
    # tests/connectors/test_guide.py runs the examples with Kafka beside a broker, and tests/dataflow/test_guide.py
    # a program that is handed to the cluster.
    if "spark" not in block and "Kafka" not in block and "sys.argv" not in block
]


def only_defines(block: str) -> bool:
    """Return whether a block only defines functions and runs nothing by itself."""
    return all(isinstance(each, ast.Import | ast.ImportFrom | ast.FunctionDef) for each in ast.parse(block).body)


@pytest.mark.parametrize("block", _BLOCKS)
def test_a_block_of_python_runs(block: str, shared_cluster: LocalCluster, tmp_path: Path) -> None:
    host, _, port = shared_cluster.http_address.removeprefix("http://").partition(":")
    code = block.replace(GUIDE_ADDRESS, f"{host}:{port}").replace("port=9870", f"port={port}")
    with PeaceFileSystem(shared_cluster.http_address) as files:
        before = {entry.name for entry in files.list("/")}
        try:
            # This name starts a fork of an interpreter with all imports done (`support/fork_server.py`).
            (tmp_path / "guide.py").write_text(code)
            done = subprocess.run(
                [sys.executable, "guide.py"], cwd=tmp_path, capture_output=True, text=True, timeout=180
            )
            assert done.returncode == 0, done.stderr
            made = {entry.name for entry in files.list("/")} - before
            assert made or GUIDE_ADDRESS not in block or only_defines(block), "it left nothing"
        finally:
            for entry in files.list("/"):
                if entry.name not in before:
                    files.delete(f"/{entry.name}", recursive=True)


def test_there_are_blocks() -> None:
    assert len(_BLOCKS) >= 4
    assert any("fsspec" in str(block.values) for block in _BLOCKS)


def test_the_guides_say_one_address() -> None:
    for page in guides():
        for block in page.blocks("python"):
            assert ":9870" not in block.replace(GUIDE_ADDRESS, ""), page.name


def test_a_page_has_blocks_by_language() -> None:
    page = Page(next(page.path for page in guides() if page.name == "README.md"))
    assert page.blocks("python") and page.blocks("")
