"""A map of Python values in pages is a dictionary, whatever of it is in memory besides, and after a failure."""

from __future__ import annotations

import random
from typing import Any

import pytest
from simulation.seeds import seeds
from support.unit_states import States

from peacefs.dataflow.unit_state import packed_map
from peacefs.dataflow.unit_state.interface import ValueMap


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
    for _ in range(600):
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
