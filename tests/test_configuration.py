"""Options from files and the environment: precedence, all mistakes reported at once, and the source of a value."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.main import get_command

from peacefs.command import application
from peacefs.commands.configuration import Configuration, ValueOrigin, apply, configuration_bytes_max, files


def configured(tmp_path: Path, text: str, environment: Mapping[str, str] | None = None) -> Configuration:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return apply(get_command(application), {"PEACEFS_CONFIG": str(file), **(environment or {})})


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "peacefs", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
    )


def found(configuration: Configuration, command: str, option: str) -> tuple[object, ValueOrigin]:
    (setting,) = [each for each in configuration.settings[command] if each.option == option]
    return setting.value, setting.origin


def test_file_gives_options_by_their_names_with_dashes_or_underscores(tmp_path: Path) -> None:
    text = "[coordinator]\ntrash_minutes = 5\nnode-port = 1\n[checkpoint.verify]\njson = true\n"
    configuration = configured(tmp_path, text.replace("json = true\n", ""))
    assert configuration.mistakes == []
    assert found(configuration, "coordinator", "trash-minutes") == (5, ValueOrigin.FILE)
    assert configuration.defaults["coordinator"] == {"trash_minutes": 5, "node_port": 1}


def test_environment_goes_before_the_file_and_the_command_line_before_both(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[client]\ncoordinator = "http://127.0.0.1:1"\n')
    by_file = run("ls", "/", PEACEFS_CONFIG=str(file), PEACEFS_URL="", PEACEFS_COORDINATOR="")
    assert "no coordinator at http://127.0.0.1:1" in by_file.stderr
    by_variable = run("ls", "/", PEACEFS_CONFIG=str(file), PEACEFS_URL="http://127.0.0.1:2")
    assert "no coordinator at http://127.0.0.1:2" in by_variable.stderr
    by_hand = run(
        *("ls", "-c", "http://127.0.0.1:3", "/"), PEACEFS_CONFIG=str(file), PEACEFS_URL="http://127.0.0.1:2"
    )
    assert "no coordinator at http://127.0.0.1:3" in by_hand.stderr


def test_every_option_has_a_variable_by_its_command_and_name(tmp_path: Path) -> None:
    configuration = configured(
        tmp_path, "", {"PEACEFS_DATANODE_RACK": "/row1", "PEACEFS_COORDINATOR_GROUP": "a=b c=d"}
    )
    assert configuration.mistakes == []
    assert found(configuration, "datanode", "rack") == ("/row1", ValueOrigin.ENVIRONMENT)
    assert found(configuration, "coordinator", "group") == ("a=b c=d", ValueOrigin.ENVIRONMENT)


def test_files_of_machine_and_user_are_both_read_and_one_that_is_named_alone(tmp_path: Path) -> None:
    of_user = tmp_path / "peacefs" / "config.toml"
    of_user.parent.mkdir()
    of_user.write_text("")
    assert of_user in files({"XDG_CONFIG_HOME": str(tmp_path)})
    assert files({"XDG_CONFIG_HOME": str(tmp_path), "PEACEFS_CONFIG": "/x.toml"}) == [Path("/x.toml")]
    assert files({"XDG_CONFIG_HOME": str(tmp_path), "PEACEFS_CONFIG": ""}) == []


def test_ten_mistakes_are_told_at_once_each_in_a_line(tmp_path: Path) -> None:
    text = """
        [client]
        coordinater = "http://x"
        [nonsense]
        [coordinator]
        port = "many"
        node_port = 70000
        permissions = "yes"
        group = "a=b"
        trash_minuts = 1
        [datanode]
        rack = ["/a", "/b"]
        scrub_days = true
        [ls]
        sideways = 1
    """
    configuration = configured(tmp_path, text, {"PEACEFS_DATANODE_PORT": "none"})
    shown = "\n".join(configuration.mistakes)
    assert len(configuration.mistakes) == 11, shown
    for complaint in (
        "[client] has no option coordinater: it has coordinator",
        "[nonsense] is no command of peacefs",
        "[coordinator] port: Input should be a valid integer",
        "[coordinator] node-port: Input should be less than or equal to 65535",
        "[coordinator] permissions: 'yes' is neither true nor false",
        "[coordinator] group: 'a=b' is one value where a list is wanted",
        "coordinator.trash_minuts is no option of `peacefs coordinator`; do you mean trash-minutes?",
        "[datanode] rack: ['/a', '/b'] is a list where one value is wanted",
        "[datanode] scrub-days: True is no value of this option",
        "ls.sideways is no option of `peacefs ls`",
        "PEACEFS_DATANODE_PORT: Input should be a valid integer",
    ):
        assert complaint in shown


def test_service_with_mistakes_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[coordinator]\nport = "many"\nsecret = 1\n')
    done = run("coordinator", "--dir", str(tmp_path / "c"), PEACEFS_CONFIG=str(file))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2 and not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[coordinator", "is no TOML"),
        (b"\xff", "is no TOML"),
        (b"#" * (configuration_bytes_max + 1), "has more than"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_file_that_cannot_be_read_is_told(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    file = tmp_path / "config.toml"
    if content is not None:
        file.write_bytes(content)
    configuration = apply(get_command(application), {"PEACEFS_CONFIG": str(file)})
    (mistake,) = configuration.mistakes
    assert complaint in mistake and str(file) in mistake


def test_config_show_says_where_each_value_is_from(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[client]\ncoordinator = "http://namenode:9870"\n[datanode]\nrack = "/r1"\n')
    done = run("config", "show", "--json", PEACEFS_CONFIG=str(file), PEACEFS_DATANODE_HOST="0.0.0.0")
    told = json.loads(done.stdout)
    assert told["files"] == [str(file)]
    settings = {(each["command"], each["option"]): each for each in told["settings"]}
    assert settings["client", "coordinator"]["source"] == str(file)
    assert settings["datanode", "rack"]["value"] == "/r1"
    assert settings["datanode", "host"]["source"] == "PEACEFS_DATANODE_HOST"
    everything = run("config", "show", "datanode", PEACEFS_CONFIG=str(file)).stdout
    assert "datanode --port = 9864\t(default)" in everything
    assert "is no command with options" in run("config", "show", "nothing", PEACEFS_CONFIG=str(file)).stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_a_shell(shell: str) -> None:
    done = run("completion", shell)
    assert done.returncode == 0 and "_PEACEFS_COMPLETE" in done.stdout


@pytest.mark.parametrize(
    ("typed", "words"),
    [("peacefs datan", {"datanode", "datanodes"}), ("peacefs datanode --ra", {"--rack"}), ("peacefs zzz", set())],
)
def test_completion_in_bash_gives_commands_and_options(tmp_path: Path, typed: str, words: set[str]) -> None:
    script = tmp_path / "peacefs.bash"
    script.write_text(run("completion", "bash").stdout)
    last = typed.split()[-1]
    asked = (
        f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(typed.split()) - 1}; "
        f"_peacefs_completion peacefs '{last}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    beside = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, timeout=180, env={**os.environ, "PATH": beside}
    )
    assert {word for word in done.stdout.split("\n") if word} == words, done.stderr
