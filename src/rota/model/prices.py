"""Prices: what the tokens of a model cost, where an agent tells only how many it used."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

MILLION = 1_000_000


class Price(NamedTuple):
    """US dollars for a million tokens; cached ones cost as much as others if nothing is said."""

    input: float
    output: float
    cached: float | None = None


Prices: TypeAlias = Mapping[str, Price]
NO_PRICES: Prices = MappingProxyType({})
