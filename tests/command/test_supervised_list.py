"""`peacefs supervise --list` in a pipe, which has no width."""

from __future__ import annotations

import pytest

from peacefs.commands.supervision_commands import _list
from peacefs.protocol.values.supervised_queries import AgentStatus, QueryStatus, Supervised


def test_list_cuts_no_value_and_takes_names_for_what_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    checkpoint, reason = (
        "/checkpoints/" + "deep/" * 30,
        "exit status 1: [bold]Exception[/bold] at \x1b[2J " + "so " * 60,
    )
    query = QueryStatus(
        *("[red]logins", "alice", ["count"], checkpoint, [], "waiting", "", "", "", 2, 3, reason.strip(), 0)
    )
    agent = AgentStatus("a", "host", "/r", [f"command-{number}" for number in range(20)], 4, 0, 0.1)
    _list(Supervised([query], [agent]), as_json=False)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "…" not in shown
    for whole in ("[red]logins", checkpoint, reason.strip().replace("\x1b", "\\u001b"), "command-18, command-19"):
        assert whole in shown
