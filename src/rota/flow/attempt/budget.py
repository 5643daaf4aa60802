"""The budget of an attempt: reserved before it starts, enforced while it runs.

Nothing is kept in memory: usage is recorded with the output that reported it, reservations are
stored until the attempt is settled, and the exit record says why a program was ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from rota.errors import NotFound
from rota.flow.attempt.attempt import Attempt
from rota.flow.attempt.programs import OutputFollower, ProgramControl
from rota.flow.lookup import get_task
from rota.flow.task_changes import disable
from rota.model.attempts import (
    ASKING,
    Assignment,
    AttemptReport,
    Cancelled,
    ExitReason,
    ExitRecord,
    Failed,
    Released,
)
from rota.model.budgets import (
    MICROS,
    NO_CAPS,
    NO_PRICES,
    USABLE,
    Amounts,
    BudgetCaps,
    BudgetHolder,
    BudgetRefusal,
    BudgetScope,
    DailyUsage,
    Prices,
)
from rota.model.instants import from_micros
from rota.model.settlement import NOTHING
from rota.model.tasks import TaskKind
from rota.ports.agent import Agent
from rota.rules import budgets as rules
from rota.rules.permissions import LOCAL
from rota.rules.task_spec import CHEAPER_MODEL
from rota.store.budgets import (
    budgets_for_task,
    duration_history,
    reserve_budget,
    usage_history,
    usage_of_run,
)
from rota.store.store import RETRY_SECONDS, Store, until_available
from rota.store.tasks import find_space
from rota.store.views import list_questions

log = logging.getLogger(__name__)

MOST_HISTORY = 20
UNPRICED = "the cost of its tokens is unknown; the settings have no price for its model"
Result = TypeVar("Result")


class AttemptBudget(NamedTuple):
    """The budgets of one attempt: caps of its run and the day, and the answers of people."""

    caps: dict[BudgetScope, BudgetCaps]
    spent: tuple[DailyUsage, ...]
    answers: rules.BudgetAnswers
    known: rules.UsageForecast | None
    spender: BudgetHolder
    asked: tuple[str, ...]
    """The answers to questions of its own programs."""

    def used(self) -> Amounts:
        """Return the usage of all attempts of the run."""
        return sum((one.used for one in self.spent), Amounts())

    def own(self) -> Amounts:
        """Return the usage of this attempt."""
        mine = (one.used for one in self.spent if one.epoch == self.spender.epoch)
        return next(mine, Amounts())

    def is_unpriced(self) -> bool:
        """Return whether the attempt reported tokens without a known price."""
        mine = (one for one in self.spent if one.epoch == self.spender.epoch)
        return any(one.used.tokens and not one.priced for one in mine)

    def run_cap(self) -> BudgetCaps:
        """Return the caps of the run."""
        own = self.caps.get(BudgetScope.RUN, NO_CAPS)
        return rules.left_of_run(own, Amounts(), self.answers.more)

    def day(self) -> list[BudgetCaps]:
        """Return the caps of the day."""
        scopes = (BudgetScope.TASK, BudgetScope.SPACE)
        return [self.caps[scope] for scope in scopes if scope in self.caps]

    def most(self) -> Amounts:
        """Return how much to reserve for this attempt in total."""
        before = self.used() + _less(self.own())
        left = rules.left_of_run(self.caps.get(BudgetScope.RUN, NO_CAPS), before, self.answers.more)
        return rules.reservation(left, self.day(), self.known, self.own())


class BudgetEnforcer:
    """Reserves, enforces, and asks at the cap."""

    def __init__(
        self,
        store: Store,
        minding: ProgramControl,
        listening: OutputFollower,
        prices: Prices = NO_PRICES,
    ) -> None:
        self._prices = prices
        self._store = store
        self._minding = minding
        self._listening = listening

    async def admitted(self, going: Attempt, agent: Agent) -> AttemptReport | None:
        """Reserve the budget of a run; return the report of an attempt that may not start.

        Attempts that are continued have their reservation already.
        """
        assignment = going.assignment
        if assignment.kept is not None and assignment.kept.gate_reply != ASKING:
            if assignment.answers:
                going.assignment = _told(assignment, await self._purse(assignment, {}))
            return None
        caps = await self._caps(assignment)
        going.budgeted = bool(caps)
        if assignment.task.kind is TaskKind.SCRIPT and not caps and not assignment.answers:
            return None  # the time of a script is known without its output
        why = self._unpriced(assignment, agent, caps)
        if why is not None:
            return AttemptReport(outcome=Failed(code="no_price", message=why, retryable=False))
        purse = await self._purse(assignment, caps)
        answered = await self._answered(assignment, purse.answers)
        if answered is not None:
            return answered
        going.assignment = _told(assignment, purse)
        unit = rules.exhausted_unit(purse.run_cap(), purse.used())
        most = Amounts() if unit else purse.most()
        got = await until_available(
            lambda: self._store.write(reserve_budget, purse.spender, going.holder, Amounts(), most)
        )
        if isinstance(got, BudgetRefusal):
            return await self._held_back(assignment, got)
        if unit is None:
            return None
        cap = getattr(purse.run_cap(), unit)
        reason = rules.stop_reason(BudgetScope.RUN, unit, cap)
        return await self.asking(AttemptReport(outcome=Cancelled(reason=reason)), going, reason)

    def _unpriced(
        self, assignment: Assignment, agent: Agent, caps: Mapping[BudgetScope, BudgetCaps]
    ) -> str | None:
        """Return why cost cannot be counted, if a budget limits it."""
        if all(each.cost is None for each in caps.values()):
            return None
        model = assignment.task.spec.get("model")
        known = None if model is None else str(model)
        return rules.unpriced_models(
            agent.name, known, self._prices, tells=agent.capabilities.money
        )

    async def watched(self, going: Attempt, listen: Callable[[], Awaitable[Result]]) -> Result:
        """Follow an attempt to its end, and end it when a budget is spent."""
        if going.budgeted is None:
            going.budgeted = bool(await self._caps(going.assignment))
        if not going.budgeted:
            return await listen()
        watch = asyncio.ensure_future(self._watch(going))
        try:
            return await listen()
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            if not watch.cancelled() and watch.exception() is not None:
                log.error("attempt.watch_failed", exc_info=watch.exception())

    async def asking(self, report: AttemptReport, going: Attempt, reason: str) -> AttemptReport:
        """Return the report of an attempt that was ended at its budget, with a question."""
        assignment = going.assignment
        spent = await until_available(
            lambda: self._store.read(usage_of_run, assignment.lease.run_id)
        )
        seconds = max(0, self._seconds(going) - report.away // MICROS)
        used = sum((one.used for one in spent), Amounts(seconds=seconds))
        options = rules.options_for(models_of(assignment))
        aside = replace(report.notes or NOTHING, stop_reason=reason)
        return replace(
            report, outcome=rules.budget_question(reason, used, options), messages=(), notes=aside
        )

    async def _watch(self, going: Attempt) -> None:
        caps = await self._caps(going.assignment)
        purse = await self._purse(going.assignment, caps)
        aside = Amounts()
        while True:
            purse = self._with_now(going, await self._anew(going.assignment, purse))
            reason, aside = await self._judged(going, purse, aside)
            if reason is not None and going.kept is not None:
                self._minding.cancel(going.kept, going.grace, reason)
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _judged(
        self, going: Attempt, purse: AttemptBudget, aside: Amounts
    ) -> tuple[str | None, Amounts]:
        """Return why an attempt must end, if so, and its current reservation."""
        caps = purse.run_cap()
        unit = rules.exhausted_unit(caps, purse.used())
        if unit is not None:
            return rules.stop_reason(BudgetScope.RUN, unit, getattr(caps, unit)), aside
        own = purse.own()
        counted = any(each.cost is not None for each in purse.caps.values())
        if counted and purse.is_unpriced():
            return f"{rules.STOP_PREFIX}{UNPRICED}", aside
        needs = any(
            getattr(own, unit) >= getattr(aside, unit) for each in purse.day() for unit, _ in each
        )
        if not needs:
            return None, aside
        got = await until_available(
            lambda: self._store.write(
                reserve_budget, purse.spender, going.holder, own + rules.ONE, purse.most()
            )
        )
        if isinstance(got, BudgetRefusal):
            return rules.stop_reason(got.scope, got.unit, got.cap), aside
        return None, got or aside

    async def _anew(self, assignment: Assignment, before: AttemptBudget) -> AttemptBudget:
        """Reload usage and caps, because people may change the caps."""
        spent = await until_available(
            lambda: self._store.read(usage_of_run, assignment.lease.run_id)
        )
        return before._replace(caps=await self._caps(assignment), spent=tuple(spent))

    async def _purse(
        self, assignment: Assignment, caps: dict[BudgetScope, BudgetCaps]
    ) -> AttemptBudget:
        """Return the budgets of an attempt; without caps most usage need not be read."""
        lease, kind = assignment.lease, assignment.task.kind
        space = await until_available(lambda: self._store.read(find_space, assignment.task.space))
        spent: list[DailyUsage] = []
        if caps or assignment.answers:
            spent = await until_available(lambda: self._store.read(usage_of_run, lease.run_id))
        known = None
        if caps:
            history = usage_history if kind is TaskKind.AGENT else duration_history
            query = partial(self._store.read, history, lease.task_id, MOST_HISTORY)
            known = rules.forecast(await until_available(query))
        now = self._store.now()
        spender = BudgetHolder(
            run_id=lease.run_id,
            epoch=lease.epoch,
            space_id=lease.space_id,
            task_id=lease.task_id,
            day=rules.local_date(from_micros(now), space.timezone),
            started_at=now,
            units=USABLE[kind],
        )
        answers, own = rules.BudgetAnswers(), assignment.answers
        if any(one.stop_reason is not None for one in spent):
            questions = await until_available(
                lambda: self._store.read(list_questions, [lease.run_id])
            )
            answers = rules.read_answers(questions, spent)
            own = rules.own_answers(own, questions, spent)
        return AttemptBudget(caps, tuple(spent), answers, known, spender, own)

    async def _caps(self, assignment: Assignment) -> dict[BudgetScope, BudgetCaps]:
        """Return the caps that apply to this kind of run."""
        lease, units = assignment.lease, USABLE[assignment.task.kind]
        found = await until_available(
            lambda: self._store.read(budgets_for_task, lease.task_id, lease.space_id)
        )
        return {scope: kept for scope, caps in found.items() if (kept := caps.only(units))}

    def _seconds(self, going: Attempt) -> int:
        """Return the working time of an attempt; 0 before it starts."""
        began = self._store.now() if going.kept is None else going.kept.started_at
        return max(0, self._store.now() - began) // MICROS

    def _with_now(self, going: Attempt, purse: AttemptBudget) -> AttemptBudget:
        """Add usage that is not recorded yet: time, and the current turn."""
        followed = self._listening.followed.get(going.assignment.lease.run_id)
        fresh = Amounts(seconds=self._seconds(going))
        if followed is not None:
            fresh += replace(followed.hearing.pending(), turns=0)
        spent = tuple(
            one._replace(used=one.used + fresh) if one.epoch == purse.spender.epoch else one
            for one in purse.spent
        )
        return purse._replace(spent=spent)

    async def _answered(
        self, assignment: Assignment, answers: rules.BudgetAnswers
    ) -> AttemptReport | None:
        """Apply an answer of a person that ends the run."""
        who = answers.pause or answers.stop
        if who is None:
            return None
        if answers.pause is not None:
            task = assignment.task
            reason = f"paused by {who} when its budget was spent"
            with suppress(NotFound):
                await until_available(lambda: self._disable(task.name, task.space, reason))
        return AttemptReport(
            outcome=Cancelled(reason=f"{who} stopped it when its budget was spent")
        )

    async def _disable(self, name: str, space: str, reason: str) -> None:
        await disable(self._store, await get_task(self._store, LOCAL, name, space), reason, None)

    async def _held_back(self, assignment: Assignment, refusal: BudgetRefusal) -> AttemptReport:
        space = await until_available(lambda: self._store.read(find_space, assignment.task.space))
        now = from_micros(self._store.now())
        until, why = rules.wait_for_budget(refusal, now, space.timezone)
        return AttemptReport(outcome=Released(until=until, reason=why))


def is_stop(ending: ExitRecord) -> bool:
    """Return whether a program was ended because of a budget."""
    return ending.reason is ExitReason.CANCELLED and ending.detail.startswith(rules.STOP_PREFIX)


def models_of(assignment: Assignment) -> tuple[str, ...]:
    """Return the fallback models of a task."""
    told, low = (assignment.task.spec.get(name) for name in ("fallback_models", CHEAPER_MODEL))
    named = tuple(map(str, told)) if isinstance(told, list) else ()
    return named or (() if low is None else (str(low),))


def cheaper(assignment: Assignment) -> Assignment:
    """Return an assignment with the last fallback model of its task."""
    models = models_of(assignment)
    if not models:
        return assignment
    spec = {**assignment.task.spec, "model": models[-1], "fallback_models": []}
    return assignment._replace(task=replace(assignment.task, spec=spec))


def _told(assignment: Assignment, purse: AttemptBudget) -> Assignment:
    """Return an assignment with the answers; a script gets only those to its own questions."""
    if purse.answers.cheaper:
        assignment = cheaper(assignment)
    if assignment.task.kind is TaskKind.AGENT or purse.asked == assignment.answers:
        return assignment
    return assignment._replace(answers=purse.asked)


def _less(amounts: Amounts) -> Amounts:
    return Amounts(**{unit: -amount for unit, amount in amounts})
