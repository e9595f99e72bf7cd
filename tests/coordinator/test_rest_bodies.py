"""REST bodies are strictly typed: a text is not accepted as a number, for example."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from peacefs.coordinator import service
from peacefs.coordinator.api.rest import app as rest
from peacefs.coordinator.api.rest.common import Body
from peacefs.coordinator.api.rest.network import PlanBody, PlanRequest
from peacefs.coordinator.api.rest.trees import ExchangeBody

assert rest and service, "with them all bodies are there"
BODIES: list[type[BaseModel]] = [*Body.__subclasses__(), PlanBody, PlanRequest]
#: For each type of a field, JSON values that resemble it but have another type.
WRONG: dict[object, list[Any]] = {
    int: ["3", True, 3.5, None],
    float: ["3", True, None],
    bool: ["true", 1, None],
    str: [3, True, None, ["a"]],
}


def faulty_fields(body: type[BaseModel], told: dict[str, Any]) -> set[object]:
    try:
        body.model_validate(told)
    except ValidationError as refusal:
        return {fault["loc"][0] for fault in refusal.errors() if fault["type"] != "missing"}
    return set()


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_body_of_another_type_is_refused(body: type[BaseModel]) -> None:
    for name, field in body.model_fields.items():
        for wrong in WRONG.get(field.annotation, []):
            assert faulty_fields(body, {name: wrong}) == {name}, (name, wrong)


def test_whole_numbers_are_rates_and_lists_of_two_are_pairs() -> None:
    (balance,) = (body for body in BODIES if body.__name__ == "BalanceBody")
    assert faulty_fields(balance, {"threshold_percent": 3}) == set()
    exchange = ExchangeBody.model_validate({"pairs": [["/a", "/b"]], "user": "ann"})
    assert exchange.pairs == [("/a", "/b")]
    assert faulty_fields(ExchangeBody, {"pairs": [["/a", 3]]}) == {"pairs"}
