"""Responses are made from the attributes of models."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Annotated

import pytest

from rota.commands.responses import From, ResponseModel


class Part(ResponseModel):
    size: int


class Whole(ResponseModel):
    name: str
    number: Annotated[int, From("place.number")]
    seconds: Annotated[float | None, From("span", timedelta.total_seconds)]
    label: Annotated[str, From("", lambda source: f"{source.name}!")]
    part: Part | None
    parts: list[Part]
    tags: list[str]
    deleted: bool = False
    note: Annotated[str | None, From("remark")] = None


SOURCE = SimpleNamespace(
    name="a",
    place=SimpleNamespace(number=3),
    span=timedelta(minutes=1),
    part=SimpleNamespace(size=1),
    parts=(SimpleNamespace(size=2), SimpleNamespace(size=3)),
    tags=("x", "y"),
    deleted=True,
    remark="seen",
)


def test_fields_are_attributes_renamed_read_and_nested():
    assert json.loads(Whole.from_model(SOURCE).model_dump_json()) == {
        "name": "a", "number": 3, "seconds": 60.0, "label": "a!", "part": {"size": 1},
        "parts": [{"size": 2}, {"size": 3}], "tags": ["x", "y"], "deleted": False, "note": "seen",
    }  # fmt: skip


def test_nothing_is_read_from_a_missing_value():
    source = SimpleNamespace(**{**vars(SOURCE), "span": None, "part": None, "remark": None})
    made = Whole.from_model(source)
    assert (made.seconds, made.part, made.note) == (None, None, None)


def test_a_given_field_wins_and_keeps_its_place():
    made = Whole.from_model(SOURCE, number=7, deleted=True)
    assert (made.number, made.deleted) == (7, True)
    assert list(json.loads(made.model_dump_json())) == list(Whole.model_fields)
    assert Whole.from_model(SOURCE).number == 3


def test_responses_of_one_kind_share_nothing():
    one, other = Whole.from_model(SOURCE), Whole.from_model(SOURCE, number=9)
    assert (one.number, other.number) == (3, 9)
    assert one.tags is not other.tags


def test_a_missing_attribute_is_an_error():
    with pytest.raises(AttributeError, match="remark"):
        Whole.from_model(
            SimpleNamespace(
                **{name: value for name, value in vars(SOURCE).items() if name != "remark"}
            )
        )
