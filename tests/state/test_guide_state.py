"""The examples in the guide to paged state run as shown, without other parts of peacefs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from peacefs.state import Checkpointer, DirectoryStore, PageManager, UnorderedMap

_GUIDE = Path(__file__).parents[2] / "docs/state.md"


def examples() -> list[str]:
    found = re.findall(r"```python\n(.*?)```", _GUIDE.read_text(), re.DOTALL)
    return [example for example in found if "PeaceStore" not in example]


def test_guide_first_example_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    exec(compile(examples()[0], str(_GUIDE), "exec"), {})
    assert list(tmp_path.glob("visits-1/*"))


def test_guide_loop_counts_each_batch_once_over_two_runs(tmp_path: Path) -> None:
    shown: dict[str, Any] = {}
    exec(compile(examples()[1], str(_GUIDE), "exec"), shown)
    shown["count"](str(tmp_path), 100, 0.02)
    shown["count"](str(tmp_path), 150, 0.02)
    pages = PageManager(memory_bytes_max=1 << 28)
    Checkpointer(pages, DirectoryStore(tmp_path), "counts").load()
    schema = pa.schema([("key", pa.int64()), ("count", pa.int64())])
    counts = UnorderedMap.create(pages.page_set("counts"), schema, "key")
    assert sum(int(items["count"].sum()) for items in counts.scan_numpy()) == 150 * 5000
