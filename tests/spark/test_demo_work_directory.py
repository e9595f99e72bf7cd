"""A demo's directory must be empty, is removed at the end unless kept, and is otherwise refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from peacefs.protocol.errors import StartupError
from peacefs.spark_connector.demo.work_directory import work_directory


@pytest.mark.parametrize("keep", [False, True])
def test_named_directory_is_gone_afterwards_unless_it_is_kept(tmp_path: Path, *, keep: bool) -> None:
    with work_directory(tmp_path / "a" / "demo", keep=keep, prefix="peacefs-") as made:
        assert made == tmp_path / "a" / "demo"
        assert list(made.iterdir()) == []
        (made / "left").write_text("x")
    assert (made / "left").exists() == keep


def test_without_a_name_it_is_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with work_directory(None, keep=False, prefix="peacefs-demo-") as made:
        assert made.parent == tmp_path
        assert made.name.startswith("peacefs-demo-")
    assert list(tmp_path.iterdir()) == []


def test_directory_with_something_in_it_is_refused_and_left(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with (
        pytest.raises(StartupError, match="is not empty: name another directory"),
        work_directory(tmp_path, keep=False, prefix="peacefs-"),
    ):
        pass
    assert (tmp_path / "mine").read_text() == "x"


def test_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(StartupError, match=r"cannot use .*/file: File exists"),
        work_directory(tmp_path / "file", keep=False, prefix="peacefs-"),
    ):
        pass
