"""README and the guides work as written: links resolve, and commands and options exist.

Other tests run their Python against a cluster: `tests/client/test_guide_python.py`,
`tests/spark/test_guide_spark.py`.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import typer.main
from support.pages import ROOT, Page, all_pages, guides
from typer.core import TyperGroup

from benchmarks import __main__ as benchmarks
from peacefs.command import application

_PROGRAM = typer.main.get_command(application)
#: The folders whose files a page may mention.
_FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()}


def _named(page: Page) -> str:
    return page.name


@pytest.mark.parametrize("page", all_pages(), ids=_named)
def test_every_link_leads_somewhere(page: Page) -> None:
    for link in page.links():
        where, _, anchor = link.partition("#")
        target = Page((page.path.parent / where).resolve() if where else page.path)
        assert target.path.exists(), f"{page.name} leads to {link}"
        assert not anchor or anchor in target.anchors(), f"{page.name} leads to {link}"


def test_every_guide_is_named_by_the_readme() -> None:
    named = set(Page(ROOT / "README.md").links())
    assert {page.name for page in guides()} - {"README.md"} <= named


@pytest.mark.parametrize("page", all_pages(), ids=_named)
def test_every_file_that_a_page_names_exists(page: Page) -> None:
    if page.name == "CHANGELOG.md":
        return  # it also mentions files of the past
    named = re.findall(r"`((?:[\w.-]+/)+[\w-]+\.\w+)`", page.prose)
    assert [name for name in named if name.split("/")[0] in _FOLDERS and not (ROOT / name).exists()] == []


def test_the_architecture_has_every_package_from_the_top_down() -> None:
    """The order is that of `lint-imports`: a package stands above the packages that it imports."""
    drawn = re.findall(r"^(\w+)/ ", Page(ROOT / "ARCHITECTURE.md").blocks("")[0], re.MULTILINE)
    linked = {link.name for link in (ROOT / "peacefs").iterdir() if link.is_symlink()}
    assert set(drawn) == {*linked, "peacefs"} and len(drawn) == len(set(drawn))
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = [[name.strip().split(".")[1] for name in layer.split("|")] for layer in contract["layers"]]
    layer_of = {name: number for number, layer in enumerate(layers) for name in layer}
    depths = [layer_of[name] for name in drawn if name != "peacefs"]
    assert drawn[0] == "peacefs" and depths == sorted(depths)


def _check_use(words: list[str]) -> str | None:
    """Return the mistake in `peacefs WORDS`, or None. A placeholder in capitals ends the check."""
    command: Any = _PROGRAM
    path = "peacefs"
    rest = list(words)
    while rest and isinstance(command, TyperGroup):
        if rest[0] in {option for parameter in command.params for option in parameter.opts} - {"--help"}:
            # An option of the program itself, and its value.
            del rest[:2]
            continue
        if rest[0] not in command.commands:
            return None if rest[0].isupper() or rest[0] == "--help" else f"{path} has no {rest[0]}"
        path, command = f"{path} {rest[0]}", command.commands[rest.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        if word == "--":
            return None
        option = word.strip("[].,;:").partition("=")[0]
        if option.startswith("-") and option not in {*known, "--help", "-"}:
            return f"{path} has no {option}"
    return None


@pytest.mark.parametrize("page", all_pages(), ids=_named)
def test_commands_and_their_options_exist(page: Page) -> None:
    if page.name == "CHANGELOG.md":
        return  # it also mentions commands of the past
    wrong = [what for words in page.command_lines("peacefs") if (what := _check_use(words)) is not None]
    assert wrong == []


@pytest.mark.parametrize("page", guides(), ids=_named)
def test_benchmarks_and_make_targets_exist(page: Page) -> None:
    for words in page.command_lines("python"):
        if words[:2] == ["-m", "benchmarks"] and len(words) > 2 and not words[2].isupper():
            assert words[2] in benchmarks._ALL, words
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in page.command_lines("make"):
        assert not words or words[0] in targets, words


def _commands(command: Any, path: str) -> set[str]:
    if not isinstance(command, TyperGroup):
        return {path}
    leaves = {leaf for name, inner in command.commands.items() for leaf in _commands(inner, f"{path} {name}")}
    # `peacefs coordinator` runs a coordinator, and also has a subcommand.
    return leaves | {path} if command.invoke_without_command else leaves


def test_the_page_of_commands_names_all_of_them() -> None:
    rows = [row for row in (ROOT / "docs" / "commands.md").read_text().splitlines() if row.startswith("| `")]
    named = set[str]()
    for row in rows:
        group = "peacefs"
        for words in (text.split() for text in re.findall(r"`([^`]+)`", row.split(" | ")[0])):
            if words[0] == "peacefs":
                group = " ".join(words[:-1])
                named.add(" ".join(words))
            else:
                named.add(f"{group} {words[0]}")
    assert named == _commands(_PROGRAM, "peacefs")


def test_figures_of_the_readme_stand_in_one_row_of_the_page_of_benchmarks() -> None:
    def rows(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith("| ")]

    def numbers(row: str) -> set[str]:
        return set(re.findall(r"\d[\d.,]*\d|\d", row.partition("|")[2].partition("|")[2]))

    measured = [numbers(row) for row in rows((ROOT / "docs" / "benchmarks.md").read_text())]
    section = (ROOT / "README.md").read_text().partition("\n## How fast\n")[2].partition("\n## ")[0]
    shown = [numbers(row) for row in rows(section) if numbers(row)]
    assert len(shown) == 3
    for figures in shown:
        assert any(figures <= row for row in measured), figures


def test_a_command_that_does_not_exist_is_found() -> None:
    assert _check_use(["frobnicate", "/a"]) == "peacefs has no frobnicate"
    assert _check_use(["ls", "--colour", "/"]) == "peacefs ls has no --colour"
    assert _check_use(["topology", "paint"]) == "peacefs topology has no paint"
    assert _check_use(["COMMAND", "--help"]) is None
