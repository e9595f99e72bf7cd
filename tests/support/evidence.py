"""The page of tests that watch invariants and provoke faults, written from the marker `evidence` on the tests.

`python tests/support/evidence.py` writes `docs/faults-tests.md`.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[2]
PAGE = _ROOT / "docs" / "faults-tests.md"
_HEAD = """# Tests of invariants and faults

Written by `python tests/support/evidence.py` from the marker `evidence` on the tests; do not edit.
`pytest -k NAME` runs one. [Invariants and faults](faults.md) says what each is about.
"""


@functools.cache
def evidence() -> dict[str, list[str]]:
    """Return the tests of each invariant or fault, as `path::name`."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((_ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for about in _marked(node):
                    found[about].append(f"{path.relative_to(_ROOT)}::{node.name}")
    return found


def page() -> str:
    """Return the text of the page."""
    sections = [
        f"\n## {about}\n\n" + "".join(f"- `{test}`\n" for test in tests)
        for about, tests in sorted(evidence().items())
    ]
    return _HEAD + "".join(sections)


def _marked(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in test.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.evidence":
            for argument in decorator.args:
                yield ast.literal_eval(argument)


if __name__ == "__main__":
    PAGE.write_text(page())
