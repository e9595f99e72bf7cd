"""`peacefs topology`: checks descriptions of networks, names lines of mistakes, and draws networks."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import Result
from typer.testing import CliRunner

from peacefs.command import application

_EXAMPLES = Path(__file__).parents[2] / "examples"


def topology(*arguments: str | Path) -> Result:
    return CliRunner().invoke(application, ["topology", *map(str, arguments)], prog_name="peacefs")


@pytest.mark.parametrize(
    ("example", "described"),
    [
        ("topology.toml", "a tree of 2 racks, 3 switches, 8 servers, 10 links"),
        ("rack-table.txt", "a tree of 3 racks, 6 switches, 6 servers, 11 links"),
    ],
)
def test_the_examples_hold_together(example: str, described: str) -> None:
    checked = topology("check", _EXAMPLES / example)
    assert (checked.exit_code, checked.stdout) == (0, f"{_EXAMPLES / example}: {described}\n")


def test_a_mesh_is_said_to_be_one(tmp_path: Path) -> None:
    file = tmp_path / "mesh.toml"
    file.write_text(
        'shape = "mesh"\n[[switch]]\nname = "a"\n[[switch]]\nname = "b"\nuplink = "a"\n'
        '[[switch]]\nname = "c"\nuplink = "a"\n[[link]]\nbetween = ["b", "c"]\n'
        '[[servers]]\nrack = "b"\nnames = ["n1"]\n'
    )
    assert topology("check", file).stdout == f"{file}: a mesh of 1 rack, 3 switches, 1 server, 4 links\n"


@pytest.mark.parametrize("command", ["check", "show"])
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("net.toml", '[[switch]]\nname = "core"\nuplink = "cellar"\n', "line 3: there is no switch cellar"),
        ("net.toml", '[[switch]\nname = "core"\n', "not TOML: "),
        ("table", "n1 /rack-1\nn1 /rack-2\n", "line 2: host n1 is listed twice, first in line 1"),
        ("table", b"n1 /r\xff\n", "not UTF-8 at byte 5"),
        ("gone.toml", None, "No such file or directory"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_line(
    tmp_path: Path, command: str, name: str, text: str | bytes | None, said: str
) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused = topology(command, file)
    assert refused.exit_code == 1
    assert refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"peacefs: topology: {file}: {said}")


def test_show_draws_the_tree_and_writes_what_is_asked_for(tmp_path: Path) -> None:
    svg, dot, graphml = (tmp_path / f"net.{kind}" for kind in ("svg", "dot", "graphml"))
    shown = topology(*("show", _EXAMPLES / "topology.toml"), *("--svg", svg, "--dot", dot, "--graphml", graphml))
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[:3] == [
        "core",
        "├── /rack-1  1.25 GB/s  (4 servers)",
        "│   ├── n1  125 MB/s",
    ]
    assert "n8" in "".join(ElementTree.parse(svg).getroot().itertext())
    assert '"/rack-2:sw" -> "core:sw" [label="6", style=solid];' in dot.read_text()
    edges = ElementTree.parse(graphml).getroot().iter("{http://graphml.graphdrawing.org/xmlns}edge")
    assert len(list(edges)) == 2 * 2 + 4 * 8


def test_show_alone_writes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert topology("show", _EXAMPLES / "rack-table.txt").exit_code == 0
    assert list(tmp_path.iterdir()) == []
