from __future__ import annotations

import pytest
from support.play import Play


@pytest.fixture
def play() -> Play:
    return Play()
