"""A map of Python values in pages behaves like a dictionary, whatever else is cached, and after a failure."""

from __future__ import annotations

import random
from typing import Any

import pytest
from simulation.seeds import seeds
from support.long_runs import often
from support.unit_states import States

from peacefs.dataflow.unit_state import packed_map
from peacefs.dataflow.unit_state.interface import ValueMap
from peacefs.protocol.errors import RecordRefused


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("most", [1, 7, 1000])
def test_packed_map_is_a_dictionary(seed: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_map, "dataflow_pending_changes_max", max(most // 2, 1))
    monkeypatch.setattr(packed_map, "dataflow_known_values_max", most)
    chance = random.Random(seed)
    states = States()
    state = states.begin()
    held: ValueMap = state.mapping("values")
    model: dict[Any, Any] = {}
    for _ in range(often(160, 600)):
        key: Any = chance.choice([chance.randint(0, 40), f"key {chance.randint(0, 40)}"])
        match chance.randint(0, 9):
            case 0 | 1 | 2:
                held[key] = model[key] = [chance.random(), "value", None]
            case 3 | 4:
                assert held.get(key) == model.get(key)
                assert (key in held) == (key in model)
            case 5:
                assert held.pop(key, None) == model.pop(key, None)
            case 6 | 7:
                keys = [chance.randint(0, 40) for _ in range(20)]
                assert held.find_all(keys) == [model.get(each) for each in keys]
            case 8:
                assert len(held) == len(model)
                assert dict(held) == model
            case _:
                if chance.random() < 0.2:
                    held.clear()
                    model.clear()
                state = states.store_and_load(state)
                held = state.mapping("values")
    assert dict(held) == model


@pytest.mark.parametrize("seed", seeds(3))
def test_packed_map_keeps_values_that_are_longer_than_a_page(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values grow, shrink and go; parts of earlier values never reappear."""
    monkeypatch.setattr(packed_map, "dataflow_known_bytes_max", 30_000)
    chance = random.Random(seed)
    states = States()
    state = states.begin()
    held: ValueMap = state.mapping("values")
    model: dict[Any, Any] = {}
    for _ in range(often(80, 200)):
        key: Any = chance.choice([None, b"\xc1", "key", ("a", (1, None)), 1.5])
        match chance.randint(0, 9):
            case 0 | 1 | 2 | 3:
                size = chance.choice([0, 10, 1983, 1984, 1985, 8104, 100_000])
                held[key] = model[key] = bytes([chance.randint(0, 255)]) * size
            case 4 | 5:
                assert held.get(key) == model.get(key)
            case 6:
                assert held.pop(key, None) == model.pop(key, None)
            case 7:
                assert held.find_all([key, "key"]) == [model.get(key), model.get("key")]
            case 8:
                assert len(held) == len(model)
                assert dict(held) == model
            case _:
                state = states.store_and_load(state)
                held = state.mapping("values")
    assert dict(held) == model
    held.clear()
    assert len(held) == 0 and list(held) == []


def test_packed_map_refuses_a_key_that_is_longer_than_half_a_page() -> None:
    held: ValueMap = States().begin().mapping("values")
    with pytest.raises(RecordRefused, match="a key of 5003 bytes is too long: there is room for 4096"):
        held["k" * 5000] = 1
    assert list(held) == []
