"""The examples in the guide to paged state run as shown, without other parts of peacefs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_GUIDE = Path(__file__).parents[2] / "docs/state.md"


def examples() -> list[str]:
    found = re.findall(r"```python\n(.*?)```", _GUIDE.read_text(), re.DOTALL)
    return [example for example in found if "PeaceStore" not in example]


def test_guide_first_example_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    exec(compile(examples()[0], str(_GUIDE), "exec"), {})
    assert list(tmp_path.glob("visits-1/*"))
