"""Budgets in words, from their records."""

from __future__ import annotations

from datetime import timedelta

from rota.doors.cli.desk import Record
from rota.doors.cli.tables import NOTHING
from rota.flow.observe.telling import span


def forecast_words(forecast: Record | None) -> str:
    """Return what a run of a task will probably use."""
    if forecast is None:
        return "unknown until one has told what it used"
    usual, most, runs = forecast["usual"], forecast["most"], forecast["runs"]
    tokens, cost, _, _, time = cells(usual)
    if not most["tokens"]:  # only its time is known
        return f"about {_time(usual)}; at most {_time(most)} in {runs} runs"
    known = [f"{tokens} tokens", cost, time]
    words = ", ".join(part for part in known if part != NOTHING)
    return f"about {words}; at most {cells(most)[0]} tokens in {runs} runs"


def cells(amounts: Record) -> list[str]:
    """Return amounts as cells of a row: tokens, cost, turns, tool calls, time."""
    cost, seconds = amounts["cost_usd"], amounts["seconds"]
    return [
        _number(amounts["tokens"]),
        NOTHING if cost is None else f"${cost:,.2f}",
        _number(amounts["turns"]),
        _number(amounts["tool_calls"]),
        NOTHING if seconds is None else span(timedelta(seconds=seconds)),
    ]


def _time(amounts: Record) -> str:
    return cells(amounts)[-1] if amounts["seconds"] else "less than a second"


def _number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"
