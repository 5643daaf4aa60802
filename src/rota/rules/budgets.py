"""Budgets: reservations, forecasts, exhausted units, and the questions asked about them.

Only units that runs of a kind can use count for it: a script uses time, but no tokens. Agents
report usage afterwards, so a run can exceed its cap by the usage of one turn. An attempt reserves
what its task typically uses, and more when that is used up, as long as the run and the day allow
it; the sum of reservations never exceeds a cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from rota.model.agents import AgentUsage
from rota.model.attempts import WaitingForAnswer
from rota.model.budgets import (
    MICROS,
    MILLION,
    UNITS,
    USABLE,
    Amounts,
    BudgetCaps,
    BudgetRefusal,
    BudgetScope,
    DailyUsage,
    Prices,
)
from rota.model.instants import to_micros
from rota.model.runs import Question
from rota.model.tasks import TaskKind

STOP_PREFIX = "budget: "
"""Start of the reason with which a program is stopped at its budget."""
OVER = "over_budget"
CONTINUE, CHEAPER, STOP, PAUSE = "continue with more", "cheaper model", "stop", "pause the task"
ENDED_BY = {
    STOP: "it will be cancelled when it is claimed",
    PAUSE: "it will be cancelled when it is claimed, and its task will be paused",
}
"""Answers after which a run does not continue, and what happens to it."""
QUESTION_LIFE = timedelta(days=7)
RETRY_RESERVATION = timedelta(minutes=1)
"""After which time a run tries again that found the rest of a budget reserved by others."""
ONE = Amounts(**dict.fromkeys(UNITS, 1))
FIRST_SHARE = 4
"""Fraction of a cap that is reserved for a task without history."""
UNIT_NAMES = {
    "tokens": "tokens",
    "cost": "dollars",
    "turns": "turns",
    "tools": "tool calls",
    "seconds": "seconds",
}


class UsageForecast(NamedTuple):
    """Typical (median) and largest usage of a task's runs, from a number of runs."""

    runs: int
    median: Amounts
    max: Amounts


class BudgetAnswers(NamedTuple):
    """Answers of people to the questions of exhausted budgets."""

    more: int = 0
    cheaper: bool = False
    stop: str | None = None
    pause: str | None = None


def forecast(history: Sequence[Amounts]) -> UsageForecast | None:
    """Return the expected usage of a run; None without history."""
    if not history:
        return None
    middle = len(history) // 2
    columns = {unit: sorted(getattr(one, unit) for one in history) for unit in UNITS}
    return UsageForecast(
        len(history),
        Amounts(**{unit: column[middle] for unit, column in columns.items()}),
        Amounts(**{unit: column[-1] for unit, column in columns.items()}),
    )


def unusable_caps(kind: TaskKind, caps: BudgetCaps) -> tuple[str, ...]:
    """Return the capped units that no run of a kind can use."""
    return tuple(unit for unit, _ in caps if unit not in USABLE[kind])


def left_of_run(caps: BudgetCaps, used: Amounts, more: int) -> BudgetCaps:
    """Return what a run may still use; each `more` answered grants its caps again."""
    return BudgetCaps(**{unit: cap * (1 + more) - getattr(used, unit) for unit, cap in caps})


def reservation(
    left: BudgetCaps, day: Sequence[BudgetCaps], known: UsageForecast | None, used: Amounts
) -> Amounts:
    """Return how much to reserve for an attempt that has used `used` already.

    It is the most a run has ever used, or without history a fraction of the smallest daily cap; at
    most what the run may use, and always more than it has used.
    """
    found: dict[str, int] = {}
    for unit in UNITS:
        own, spent = getattr(left, unit), getattr(used, unit)
        caps = [cap for each in day if (cap := getattr(each, unit)) is not None]
        if own is None and not caps:
            continue
        largest = getattr(known.max, unit) if known is not None else 0
        share = min(caps) // FIRST_SHARE if caps else 0
        guess = max(largest or share, spent + max(spent // 2, share, 1), 1)
        found[unit] = guess if own is None else max(0, min(own, guess) if caps else own)
    return Amounts(**found)


def exhausted_unit(caps: BudgetCaps, used: Amounts) -> str | None:
    """Return the first unit of which nothing is left."""
    for unit, cap in caps:
        if getattr(used, unit) >= cap:
            return unit
    return None


def add_price(usage: AgentUsage, model: str | None, prices: Prices) -> AgentUsage:
    """Return usage with its cost: as the agent reported it, or by the price of its model.

    A reported cost of zero or none is replaced if tokens were used and the price is known.
    """
    price = prices.get(usage.model or "") or prices.get(model or "")
    if usage.cost or price is None or not (usage.input or usage.output):
        return usage
    cached = price.input if price.cached is None else price.cached
    fresh = max(0, usage.input - usage.cached)
    cost = fresh * price.input + usage.cached * cached + usage.output * price.output
    return replace(usage, cost=cost / MILLION)


def unpriced_models(agent: str, model: str | None, prices: Prices, *, tells: bool) -> str | None:
    """Return why the cost of an agent cannot be determined; None if it can."""
    if tells or (model or "") in prices:
        return None
    which = f"its model {model!r}" if model else "the model it chooses; name one"
    return (
        f"the agent {agent} does not report its cost: set the price of {which} in the settings "
        "under [prices], or cap tokens instead"
    )


def amount_text(unit: str, amount: int) -> str:
    """Return an amount with its unit as text."""
    if unit == "cost":
        return f"${amount / MICROS:,.2f}"
    return f"{amount:,} {UNIT_NAMES[unit]}"


def stop_reason(scope: BudgetScope, unit: str, cap: int) -> str:
    """Return the reason for stopping a program: the exhausted budget."""
    whose = {"run": "this run", "task": "the task today", "space": "the space today"}[scope]
    return f"{STOP_PREFIX}{whose} may use {amount_text(unit, cap)}"


def budget_question(reason: str, used: Amounts, options: Sequence[str]) -> WaitingForAnswer:
    """Return the question asked by a run that has used up its budget."""
    so_far = ", ".join(amount_text(unit, amount) for unit, amount in used if amount) or "nothing"
    return WaitingForAnswer(
        question=f"The budget is used up ({reason.removeprefix(STOP_PREFIX)}). How to go on?",
        context=f"The program was asked to end; so far it has used {so_far}.",
        options=tuple(options),
        expires_in=QUESTION_LIFE,
    )


def options_for(models: Sequence[str]) -> tuple[str, ...]:
    """Return the possible answers; a cheaper model only if the task names one."""
    return (CONTINUE, *([CHEAPER] if models else []), STOP, PAUSE)


def read_answers(questions: Sequence[Question], stops: Sequence[DailyUsage]) -> BudgetAnswers:
    """Return the answers to questions about budgets.

    A question is about a budget only if Rota recorded a stop at a budget for its epoch.
    """
    epochs = _stopped(stops)
    more, cheaper, stop, pause = 0, False, None, None
    for question in questions:
        if question.epoch not in epochs or question.answer is None:
            continue
        text = question.answer.strip().lower()
        if text == STOP:
            stop = question.answered_by or "somebody"
        elif text == PAUSE:
            pause = question.answered_by or "somebody"
        else:
            more += 1
            cheaper = cheaper or text == CHEAPER
    return BudgetAnswers(more, cheaper, stop, pause)


def ended_by_answer(answer: str, epoch: int, stops: Sequence[DailyUsage]) -> str | None:
    """Return what happens to a run if an answer about its budget ends it, else None."""
    if epoch not in _stopped(stops):
        return None
    return ENDED_BY.get(answer.strip().lower())


def own_answers(
    answers: Sequence[str], questions: Sequence[Question], stops: Sequence[DailyUsage]
) -> tuple[str, ...]:
    """Return the answers to the questions of the program itself, in order."""
    epochs = _stopped(stops)
    asked = [one for one in questions if one.kind != "lost" and one.answer is not None]
    both = zip(asked, answers, strict=False)
    return tuple(answer for question, answer in both if question.epoch not in epochs)


def _stopped(stops: Sequence[DailyUsage]) -> set[int]:
    return {spent.epoch for spent in stops if spent.stop_reason is not None}


def wait_for_budget(refusal: BudgetRefusal, now: datetime, timezone: str) -> tuple[int, str]:
    """Return until when a run waits for budget, in microseconds, and why.

    Reserved amounts may be returned at any moment; used ones only count until the next day.
    """
    whose = "task" if refusal.scope is BudgetScope.TASK else "space"
    cap, left, aside = (amount_text(refusal.unit, amount) for amount in refusal[2:])
    why = f"the {whose}'s budget of {cap} for today has {left} left"
    until = next_day(now, timezone)
    if not refusal.left and refusal.reserved:
        soon = to_micros(now + RETRY_RESERVATION)
        return min(until, soon), f"{why}; {aside} are reserved by running attempts"
    return until, why


def local_date(now: datetime, timezone: str) -> str:
    """Return the local date of an instant."""
    return now.astimezone(ZoneInfo(timezone)).date().isoformat()


def next_day(now: datetime, timezone: str) -> int:
    """Return when the next local date starts, in microseconds."""
    zone = ZoneInfo(timezone)
    day = now.astimezone(zone).date() + timedelta(days=1)
    return to_micros(datetime.combine(day, time(), zone).astimezone(UTC))
