"""The settings of models: what they cost, and which ones the tiers of an agent mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from rota.model.prices import Price, Prices

_Dollars = Annotated[float, Field(ge=0, le=1_000_000)]


class PriceSet(BaseModel):
    """What a million tokens of a model cost."""

    model_config = ConfigDict(extra="forbid")

    input: _Dollars
    output: _Dollars
    cached: _Dollars | None = None


TierModels: TypeAlias = dict[
    Literal["claude", "codex", "pi"], dict[Literal["low", "medium", "high"], str]
]
MEANINGS = {
    "prices": "what models cost whose agent tells only tokens, in the file: "
    '`[prices."gpt-6"]` with `input`, `output` and `cached`, dollars for a million tokens',
    "tiers": "the models of each agent that `model_tier` means, in the file: `[tiers.claude]` "
    "with `low`, `medium` and `high`",
}


def prices_of(told: Mapping[str, PriceSet]) -> Prices:
    """Return what was set."""
    return {name: Price(one.input, one.output, one.cached) for name, one in told.items()}
