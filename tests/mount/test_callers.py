"""Which processes can write to a file of the mount, as Linux shows them."""

from __future__ import annotations

import os
from pathlib import Path

from peacefs.client.mount.callers import have_open_for_writing


def test_process_that_can_write_is_found_with_and_without_the_name(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    with file.open():
        assert not have_open_for_writing([os.getpid()], str(file))
        with file.open("a"):
            assert have_open_for_writing([os.getpid()], str(file))
            file.unlink()
            assert have_open_for_writing([os.getpid()], str(file)), "Linux appends `(deleted)`"
    assert not have_open_for_writing([os.getpid()], str(file))
