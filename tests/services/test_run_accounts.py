"""An agent's commands execute nothing from a name, and cannot reach the agent or the cluster's secret."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from support.supervised_world import World, accounts_of_tests, open_directory
from support.waiting import wait_until

from peacefs.client.control.supervised_queries import SupervisedQueries, WantedQuery
from peacefs.protocol.errors import QueryFailed, StartupError
from peacefs.protocol.messages import RunOrder
from peacefs.spark_connector.supervision.command_list import read_command_list, start_of
from peacefs.spark_connector.supervision.registration import supervise
from peacefs.spark_connector.supervision.run_account import Accounts, home_of
from peacefs.spark_connector.supervision.run_process import RunProcess

pytestmark = pytest.mark.cluster

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give runs accounts of their own")

#: Reports its identity, and what it can access.
LOOK = """
import json, os, sys

def can_read(path):
    try:
        with open(path, "rb") as file:
            return bool(file.read(1))
    except OSError:
        return False

agent, secret, log = sys.argv[1:]
print(json.dumps({
    "uids": os.getresuid(), "gids": os.getresgid(), "groups": os.getgroups(), "umask": os.umask(0),
    "descriptors": [each for each in range(3, 1024) if os.path.lexists(f"/proc/self/fd/{each}")],
    "environment": dict(os.environ), "directory": os.getcwd(),
    "reads": [path for path in (secret, log, f"/proc/{agent}/environ", f"/proc/{agent}/mem") if can_read(path)],
    "guard": can_read(f"/proc/{os.getppid()}/environ"),
}))
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "commands.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "spark-submit {checkpoint}"],
        ["-c", "{checkpoint}"],
        ["-lc", "{query}"],
        ["-c", "exec $0", "job --at {run}"],
        ["--login", "spark-submit '{checkpoint}'"],
        ["--command", "{checkpoint}"],
    ],
)
@pytest.mark.evidence("hostile-query-names")
def test_placeholder_in_what_a_shell_may_read_as_a_script_is_refused(tmp_path: Path, arguments: list[str]) -> None:
    path = written(tmp_path, f"[commands.a]\nprogram = '/bin/sh'\narguments = {json.dumps(arguments)}")
    with pytest.raises(StartupError, match=r"has a placeholder in .*PEACEFS_CHECKPOINT"):
        read_command_list(path)


def test_extra_arguments_where_a_script_is_expected_are_refused(tmp_path: Path) -> None:
    text = "[commands.a]\nprogram = '/bin/sh'\narguments = ['-c']\nextra_arguments = true"
    with pytest.raises(StartupError, match="could have anything run"):
        read_command_list(written(tmp_path, text))


def test_placeholders_as_words_and_in_options_are_allowed(tmp_path: Path) -> None:
    arguments = ["-c", 'exec job "$1"', "sh", "{checkpoint}", "--name={query}", "--conf=spark.x={coordinator}"]
    text = f"[commands.a]\nprogram = '/bin/sh'\narguments = {json.dumps(arguments)}"
    assert read_command_list(written(tmp_path, text)).commands["a"].arguments == arguments


@pytest.mark.parametrize(
    "name", ["$(touch {marker})", "`touch {marker}`", "a;touch {marker}", "a\ntouch {marker}"]
)
@pytest.mark.parametrize("way", ["argument", "variable"])
def test_name_executes_nothing_although_the_command_has_a_shell_read_it_twice(
    tmp_path: Path, name: str, way: str
) -> None:
    """As `ssh` does with its arguments, or a careless script."""
    marker = tmp_path / "marker"
    scripts = {
        "argument": ["-c", 'eval "echo $1"', "sh", "{checkpoint}"],
        "variable": ["-c", 'printf %s "$PEACEFS_CHECKPOINT"'],
    }
    text = f"[commands.a]\nprogram = '/bin/sh'\narguments = {json.dumps(scripts[way])}\n{accounts_of_tests()}"
    listed = read_command_list(written(tmp_path, text))
    accounts = Accounts(listed.accounts, os.geteuid())
    account = accounts.of(pwd.getpwuid(os.geteuid()).pw_name)
    location = "/ck/" + name.format(marker=marker)
    order = RunOrder("q", "run", account.name, "a", [], location)
    home = home_of(account, tmp_path)
    if way == "argument":
        with pytest.raises(QueryFailed, match=r"no plain word for a shell.*PEACEFS_CHECKPOINT"):
            start_of(order, listed, "host:9870", {}, account, home)
    else:
        log = tmp_path / "log"
        process = RunProcess(start_of(order, listed, "host:9870", {}, account, home), log)
        try:
            wait_until(lambda: ended(process), "it has ended")
        finally:
            process.kill()
        assert process.status == 0
        assert log.read_text() == f"webhdfs://host:9870{location}"
    assert not marker.exists()


def ended(process: RunProcess) -> bool:
    process.encourage()
    return process.status is not None


@pytest.mark.evidence("hostile-query-names")
def test_name_of_a_checkpoint_executes_nothing_on_an_agent(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    marker.parent.mkdir(exist_ok=True)
    commands = f"""
        [commands.job]
        program = "/bin/sh"
        arguments = ["-c", 'eval "echo $1"; sleep 600', "sh", "{{checkpoint}}"]
        {accounts_of_tests()}
    """
    with World.running(tmp_path) as world, SupervisedQueries(world.cluster.http_address) as queries:
        world.agent("north", commands)
        supervise(
            ["job"],
            coordinator=world.cluster.http_address,
            name="job",
            checkpoint=f"/ck/$(cd ..;touch marker;touch {marker.name})",
            restarts_max=0,
        )
        wait_until(lambda: queries.status("job").phase == "failed", "it is given up")
        assert "no plain word for a shell" in queries.status("job").reason
    assert not list(tmp_path.rglob("marker"))


@as_root
@pytest.mark.evidence("hostile-query-names")
def test_run_has_an_account_of_its_own_and_reaches_neither_agent_nor_secret() -> None:
    nobody = pwd.getpwnam("nobody")
    # Let the account reach its directory; only modes protect the secret and the log.
    with (
        open_directory() as directory,
        World.running(directory) as world,
        SupervisedQueries(world.cluster.http_address) as queries,
    ):
        secret = world.cluster.directory / "coordinator" / "cluster.secret"
        north = world.directory / "north"
        pid_file = directory / "agent.pid"
        commands = f"""
            [commands.look]
            program = "/bin/sh"
            arguments = [
                "-c", 'exec {sys.executable} -I -c "$LOOK" "$(cat {pid_file})" {secret} {north}/agent.log'
            ]
            environment = {{ LOOK = '''{LOOK}''', SPECIAL = "1" }}
            [accounts]
            root = "nobody"
        """
        agent = world.agent("north", commands)
        pid_file.write_text(str(agent.pid))
        (north / "agent.log").chmod(0o600)
        queries.register(WantedQuery("look", ["look"]))
        wait_until(lambda: queries.status("look").phase == "ended", "it has looked")
        (log,) = (north / "logs").glob("look.*.log")
        found = json.loads(log.read_text())
        assert found["uids"] == [nobody.pw_uid] * 3 and found["gids"] == [nobody.pw_gid] * 3
        assert 0 not in found["groups"]
        assert found["umask"] == 0o077
        assert found["reads"] == [] and not found["guard"]
        assert found["descriptors"] == []
        home = north / "work" / "nobody"
        assert found["directory"] == found["environment"]["HOME"] == str(home)
        assert (home.stat().st_uid, home.stat().st_mode & 0o777) == (nobody.pw_uid, 0o700)
        assert found["environment"]["SPECIAL"] == "1" and "PEACEFS_SECRET_FILE" not in found["environment"]
        assert set(found["environment"]) & set(os.environ) <= {
            *("PATH", "LANG", "LANGUAGE", "TZ", "HOME", "USER", "LOGNAME", "TMPDIR", "PWD", "SHLVL", "_"),
            *("JAVA_HOME", "LC_ALL", "LC_CTYPE", "OLDPWD"),
        }


@as_root
def test_user_without_an_account_runs_nothing_on_an_agent_of_root(tmp_path: Path) -> None:
    accounts = Accounts({}, 0)
    assert accounts.warning() is None
    for user in ("root", "nobody-of-this-name"):
        with pytest.raises(QueryFailed, match="has no account of its own on this node"):
            accounts.of(user)
    assert accounts.of("nobody").uid == pwd.getpwnam("nobody").pw_uid
    assert "run as root" in (Accounts({"root": "root"}, 0).warning() or "")


def test_agent_that_is_not_root_says_so_and_can_use_no_accounts() -> None:
    accounts = Accounts({}, 12345)
    assert "own uid 12345" in (accounts.warning() or "") and "secret" in (accounts.warning() or "")
    assert accounts.of("ann").groups is None
    with pytest.raises(StartupError, match="only when it runs as root"):
        Accounts({"ann": "nobody"}, 12345)


def test_account_that_is_not_there_is_said_at_the_start() -> None:
    with pytest.raises(StartupError, match="is not on this machine"):
        Accounts({"ann": "nobody-of-this-name"}, 0)


@as_root
def test_memory_of_an_agent_is_hidden_from_its_own_uid() -> None:
    hidden = """
import sys
from peacefs.spark_connector.supervision.run_account import hide_memory
hide_memory()
print("hidden", flush=True)
sys.stdin.read()
"""
    uid = pwd.getpwnam("nobody").pw_uid
    with subprocess.Popen(
        [sys.executable, "-I", "-c", hidden], stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=uid
    ) as agent:
        assert agent.stdin is not None and agent.stdout is not None
        assert agent.stdout.readline() == b"hidden\n"
        look = subprocess.run(
            ["/bin/cat", f"/proc/{agent.pid}/environ"], user=uid, capture_output=True, timeout=180
        )
        agent.stdin.close()
    assert look.returncode != 0 and b"Permission denied" in look.stderr
