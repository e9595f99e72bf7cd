"""Benchmarks run rarely, so these tests check that they still fit the product."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import benchmarks

_NAMES = [module.name for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")]


@pytest.mark.parametrize("name", [name for name in _NAMES if not name.endswith("__main__")])
def test_it_finds_all_that_it_imports(name: str) -> None:
    if name.endswith("bytewax_flows"):
        pytest.importorskip("bytewax")
    importlib.import_module(name)
