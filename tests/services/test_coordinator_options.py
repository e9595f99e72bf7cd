"""The options of `peacefs coordinator` for permissions and the trash."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from peacefs.command import application
from peacefs.coordinator import process
from peacefs.coordinator.options import CoordinatorOptions


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[CoordinatorOptions]:
    """Return the options of each coordinator that the command would start."""
    options: list[CoordinatorOptions] = []
    monkeypatch.setattr(process, "run", options.append)
    return options


def test_permissions_are_checked_unless_told_otherwise(started: list[CoordinatorOptions]) -> None:
    assert CliRunner().invoke(application, ["coordinator", "--dir", "x"]).exit_code == 0
    assert CliRunner().invoke(application, ["coordinator", "--dir", "x", "--no-permissions"]).exit_code == 0
    assert [options.check_permissions for options in started] == [True, False]
    assert started[0].groups == {}


def test_groups_are_named_one_by_one(started: list[CoordinatorOptions]) -> None:
    named = ["--group", "analysts=ann,bob", "--group", "supergroup=root"]
    assert CliRunner().invoke(application, ["coordinator", "--dir", "x", *named]).exit_code == 0
    assert started[0].groups == {"analysts": ["ann", "bob"], "supergroup": ["root"]}


@pytest.mark.parametrize("wrong", ["analysts", "=ann"])
def test_group_option_that_is_no_group_is_refused(started: list[CoordinatorOptions], wrong: str) -> None:
    result = CliRunner().invoke(application, ["coordinator", "--dir", "x", "--group", wrong])
    assert result.exit_code == 2
    assert started == []


def test_there_is_a_trash_only_where_it_is_asked_for(started: list[CoordinatorOptions]) -> None:
    assert CliRunner().invoke(application, ["coordinator", "--dir", "x"]).exit_code == 0
    assert CliRunner().invoke(application, ["coordinator", "--dir", "x", "--trash-minutes", "1440"]).exit_code == 0
    assert CliRunner().invoke(application, ["coordinator", "--dir", "x", "--trash-minutes", "-1"]).exit_code == 2
    assert [options.trash_minutes for options in started] == [0, 1440]
