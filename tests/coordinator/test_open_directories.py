"""A root that everyone may write to, as in older clusters, causes a warning at each start; a new root does not."""

from __future__ import annotations

import logging

import pytest
from support.open_root import open_homes, open_root

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.store import store_in_memory
from peacefs.coordinator.operations.open_directories import warn_of_open_directories


def test_open_root_and_homes_are_told_in_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    metadata = store_in_memory()
    metadata.begin_epoch()
    with caplog.at_level(logging.WARNING):
        warn_of_open_directories(metadata.reader())
        assert caplog.messages == []
        run_now(metadata, open_root)
        run_now(metadata, open_homes)
        warn_of_open_directories(metadata.reader())
    assert [(message.split()[0], "chmod 755" in message, "\n" in message) for message in caplog.messages] == [
        ("/", True, False),
        ("/user", True, False),
    ]
    metadata.close()
