"""Budgets: reservations, forecasts, when one is used up, what a person is asked.

Only what runs of its kind can use counts for a run: a script uses time, and no tokens. An agent
tells what it has used after the fact, so a run can pass its cap by what one turn uses. It is set
aside as much as the task usually takes, and more when that is used up, as long as the run
and the day allow it: what is set aside together is never more than a cap.
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

STOPPED = "budget: "
"""How the reason begins for which a program was ended at its budget."""
OVER = "over_budget"
CONTINUE, CHEAPER, STOP, PAUSE = "continue with more", "cheaper model", "stop", "pause the task"
ENDED_BY = {
    STOP: "it is cancelled when its turn comes",
    PAUSE: "it is cancelled when its turn comes, and its task is paused",
}
"""What becomes of a run by the answers after which it does not go on."""
QUESTION_LIFE = timedelta(days=7)
GIVEN_BACK = timedelta(minutes=1)
"""How soon a run looks again that found all that is left set aside for others."""
ONE = Amounts(**dict.fromkeys(UNITS, 1))
FIRST_SHARE = 4
"""Which part of a cap is set aside for a task that nothing is known of."""
WORDS = {
    "tokens": "tokens",
    "cost": "dollars",
    "turns": "turns",
    "tools": "tool calls",
    "seconds": "seconds",
}


class UsageForecast(NamedTuple):
    """What a run of a task usually uses and has used at most, from so many runs."""

    runs: int
    median: Amounts
    max: Amounts


class BudgetAnswers(NamedTuple):
    """What people have answered when a run had used up its budget."""

    more: int = 0
    cheaper: bool = False
    stop: str | None = None
    pause: str | None = None


def forecast(history: Sequence[Amounts]) -> UsageForecast | None:
    """Return what a run will probably use; None if there is no history."""
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
    """Return the units of caps that no run of a kind can use."""
    return tuple(unit for unit, _ in caps if unit not in USABLE[kind])


def left_of_run(caps: BudgetCaps, used: Amounts, more: int) -> BudgetCaps:
    """Return what a run may still use; each `more` that was answered grants its caps once more."""
    return BudgetCaps(**{unit: cap * (1 + more) - getattr(used, unit) for unit, cap in caps})


def reservation(
    left: BudgetCaps, day: Sequence[BudgetCaps], known: UsageForecast | None, used: Amounts
) -> Amounts:
    """Return how much to set aside for an attempt that has used so much already.

    The most a run has ever used, or a part of the smallest cap of the day while nothing is known;
    never more than the run may use, and always more than it has used.
    """
    found: dict[str, int] = {}
    for unit in UNITS:
        own, spent = getattr(left, unit), getattr(used, unit)
        caps = [cap for each in day if (cap := getattr(each, unit)) is not None]
        if own is None and not caps:
            continue
        usual = getattr(known.max, unit) if known is not None else 0
        share = min(caps) // FIRST_SHARE if caps else 0
        guess = max(usual or share, spent + max(spent // 2, share, 1), 1)
        found[unit] = guess if own is None else max(0, min(own, guess) if caps else own)
    return Amounts(**found)


def used_up(caps: BudgetCaps, used: Amounts) -> str | None:
    """Return the first unit of which nothing is left, in words."""
    for unit, cap in caps:
        if getattr(used, unit) >= cap:
            return unit
    return None


def add_price(said: AgentUsage, model: str | None, prices: Prices) -> AgentUsage:
    """Return usage with what it costs: as the agent told, else by the price of its model.

    An agent that tells tokens and no money, or none at all, is charged if the price is known.
    """
    price = prices.get(said.model or "") or prices.get(model or "")
    if said.cost or price is None or not (said.input or said.output):
        return said
    cached = price.input if price.cached is None else price.cached
    fresh = max(0, said.input - said.cached)
    cost = fresh * price.input + said.cached * cached + said.output * price.output
    return replace(said, cost=cost / MILLION)


def unpriced_models(agent: str, model: str | None, prices: Prices, *, tells: bool) -> str | None:
    """Return why nobody would know what an agent costs, None if somebody does."""
    if tells or (model or "") in prices:
        return None
    which = f"its model {model!r}" if model else "the model it chooses; name one"
    return (
        f"the agent {agent} tells no money: name the price of {which}, in the settings under "
        "[prices], or cap tokens instead"
    )


def amount_words(unit: str, amount: int) -> str:
    """Return an amount with its unit."""
    if unit == "cost":
        return f"${amount / MICROS:,.2f}"
    return f"{amount:,} {WORDS[unit]}"


def stopped_words(scope: BudgetScope, unit: str, cap: int) -> str:
    """Return for which budget a program is ended."""
    whose = {"run": "this run", "task": "the task today", "space": "the space today"}[scope]
    return f"{STOPPED}{whose} may use {amount_words(unit, cap)}"


def budget_question(reason: str, used: Amounts, options: Sequence[str]) -> WaitingForAnswer:
    """Return the question that a run asks which has used up its budget."""
    so_far = ", ".join(amount_words(unit, amount) for unit, amount in used if amount) or "nothing"
    return WaitingForAnswer(
        question=f"It has used up its budget ({reason.removeprefix(STOPPED)}). What now?",
        context=f"It was ended politely, having used {so_far}.",
        options=tuple(options),
        expires_in=QUESTION_LIFE,
    )


def options_for(models: Sequence[str]) -> tuple[str, ...]:
    """Return what can be answered; a cheaper model only where the task names one."""
    return (CONTINUE, *([CHEAPER] if models else []), STOP, PAUSE)


def read_answers(questions: Sequence[Question], stops: Sequence[DailyUsage]) -> BudgetAnswers:
    """Return what people answered to the questions of a budget, told from those of an agent.

    Only what Rota itself has on record as a stop makes a question one of a budget.
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
    """Return what becomes of a run that an answer to the question of its budget ends, in words."""
    if epoch not in _stopped(stops):
        return None
    return ENDED_BY.get(answer.strip().lower())


def own_answers(
    answers: Sequence[str], questions: Sequence[Question], stops: Sequence[DailyUsage]
) -> tuple[str, ...]:
    """Return the answers that a program has asked for itself, in order."""
    epochs = _stopped(stops)
    asked = [one for one in questions if one.kind != "lost" and one.answer is not None]
    both = zip(asked, answers, strict=False)
    return tuple(answer for question, answer in both if question.epoch not in epochs)


def _stopped(stops: Sequence[DailyUsage]) -> set[int]:
    return {spent.epoch for spent in stops if spent.stop_reason is not None}


def held_back(refusal: BudgetRefusal, now: datetime, timezone: str) -> tuple[int, str]:
    """Return until when nothing may begin, in microseconds, and why.

    What is set aside for others may be given back any moment; what is used, only the next day.
    """
    whose = "task" if refusal.scope is BudgetScope.TASK else "space"
    cap, left, aside = (amount_words(refusal.unit, amount) for amount in refusal[2:])
    why = f"the {whose}'s budget of {cap} for today has {left} left"
    until = next_day(now, timezone)
    if not refusal.left and refusal.reserved:
        soon = to_micros(now + GIVEN_BACK)
        return min(until, soon), f"{why}; {aside} are set aside for what runs now"
    return until, why


def day_of(now: datetime, timezone: str) -> str:
    """Return the date of an instant on the wall of a zone."""
    return now.astimezone(ZoneInfo(timezone)).date().isoformat()


def next_day(now: datetime, timezone: str) -> int:
    """Return the first instant of the next date on the wall of a zone, in microseconds."""
    zone = ZoneInfo(timezone)
    day = now.astimezone(zone).date() + timedelta(days=1)
    return to_micros(datetime.combine(day, time(), zone).astimezone(UTC))
