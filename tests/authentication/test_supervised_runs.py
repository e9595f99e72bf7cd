"""Runs started by agents authenticate as the query's user, not as the agent."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

import pytest
from support.supervised_world import World, open_directory
from support.waiting import wait_until

from peacefs.client.control.supervised_queries import SupervisedQueries, WantedQuery
from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.values.supervised_queries import QueryPhase

pytestmark = pytest.mark.cluster

WRITER = """
import os, stat, sys
from pathlib import Path
from peacefs.client.control.addresses import split_uri
from peacefs.client.filesystem import PeaceFileSystem

file = Path(os.environ["PEACEFS_TOKEN_FILE"])
assert stat.S_IMODE(file.stat().st_mode) == 0o600 and file.stat().st_uid == os.geteuid()
assert "PEACEFS_TOKEN" not in os.environ
Path(os.environ["HOME"], "reached").touch()
address, root = split_uri(os.environ["PEACEFS_CHECKPOINT"])
with PeaceFileSystem(address.http) as files:
    assert files.user == "alice", files.user
    files.write(f"{root}/done", f"{file}\\n{os.geteuid()}".encode())
"""

#: As root, the agent gives the run an account of its own.
ACCOUNT = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
COMMANDS = f"""
[commands.write]
program = "{sys.executable}"
users = ["alice"]
arguments = ["-P", "-B", "-c", '''{WRITER}''']
{"[accounts]" if os.geteuid() == 0 else ""}
{f'alice = "{ACCOUNT.pw_name}"' if os.geteuid() == 0 else ""}
"""


def test_run_has_a_token_of_its_querys_user(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_directory() as directory, World.running(directory, ["--authentication=token"]) as world:
        with TokenAdministration(f"unix:{world.cluster.directory}") as administration:
            alice, bob = (administration.create(user, 600).token for user in ("alice", "bob"))
        monkeypatch.setenv("PEACEFS_TOKEN", bob)
        world.agent("north", COMMANDS)
        monkeypatch.setenv("PEACEFS_TOKEN", alice)
        with SupervisedQueries(world.cluster.http_address) as queries:
            queries.register(WantedQuery("q", ["write"], checkpoint="/user/alice/q"))
            wait_until(
                lambda: queries.status("q").phase in (QueryPhase.ENDED.value, QueryPhase.FAILED.value),
                "the query is over",
            )
            status = queries.status("q")
            assert status.phase == QueryPhase.ENDED.value, status.reason
        with PeaceFileSystem(world.cluster.http_address, token=alice) as files:
            kept, uid = files.read("/user/alice/q/done").decode().split()
            assert int(uid) == ACCOUNT.pw_uid
            assert files.status("/user/alice/q/done").owner == "alice"
        wait_until(lambda: not Path(kept).exists(), "its token is gone with it")
        assert bob not in (directory / "north" / "agent.log").read_text()
