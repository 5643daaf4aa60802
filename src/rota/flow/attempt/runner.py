"""Runs attempts under keepers, and continues those of an earlier process.

An attempt is recorded, started, followed to its end and reported, in this order. If the process is
killed in between, the next process of the home finds the row, checks the keeper, and continues from
there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

from rota.errors import Fenced, Invalid, NotPermitted, Unavailable
from rota.faultpoints import reach
from rota.flow.attempt.attempt import (
    TERMS,
    Attempt,
    KeeperLeaseTerms,
    LaunchRetryPolicy,
    add_last_output,
    attempt_report,
    decide_relaunch,
    ended_before_start,
    explain_failure,
    explain_loss,
    has_started,
    has_written,
    read_result,
    refusal_report,
    remaining_limits,
    requeue_until_lifted,
    result_from_output,
    timeout_report,
)
from rota.flow.attempt.budget import BudgetEnforcer
from rota.flow.attempt.checks import CheckRunner, GateRunner, ResultChecker
from rota.flow.attempt.conversation import AttemptMailbox, MessageDelivery, add_steering
from rota.flow.attempt.output import start_notices
from rota.flow.attempt.prepare import (
    SCRIPT,
    USUAL,
    AttemptPreparer,
    PreparedAttempt,
    apply_one_off_spec,
)
from rota.flow.attempt.programs import (
    HelperPrograms,
    KeeperWatchdog,
    OutputFollower,
    ProgramControl,
    SupersededAttempts,
    await_uninterrupted,
    detach_task,
    is_waiting_for_answer,
    stop_waiting_attempts,
)
from rota.flow.attempt.prompt import PromptBuilder, make_parser, resume_session
from rota.model.attempts import (
    ASKING,
    Assignment,
    AttemptReport,
    Cancelled,
    KeptAttempt,
    Relaunch,
    Released,
)
from rota.model.budgets import NO_PRICES, Prices
from rota.model.executors import ExecutorRegistry
from rota.model.heartbeats import AttemptSample
from rota.model.programs import ResourceLimits
from rota.model.tasks import TaskKind
from rota.ports.agent import Agent
from rota.ports.clock import Random
from rota.ports.host import AttemptTokens, Probes
from rota.ports.keeper import KeeperHome
from rota.ports.mailbox import MailboxService
from rota.store.attempts import (
    drop_kept_attempt,
    list_kept_attempts,
    record_launch,
    renew_home_lease,
    schedule_relaunch,
)
from rota.store.store import Store, until_available

log = logging.getLogger(__name__)
ROUTES = ("agent", "script")
TIDY_FIRST_MICROS = 60 * 1_000_000
TIDY_MICROS = 3600 * 1_000_000
CANNOT_BE_HAD = (Invalid, NotPermitted, Unavailable)
UNHEARD = "it cannot be continued"
RELEASED = AttemptReport(outcome=Released())
CANCELLED = AttemptReport(outcome=Cancelled(reason="it was cancelled before it began"))


class AttemptRunner:
    """Runs the attempts of agents and scripts."""

    keeps = True

    def __init__(
        self,
        store: Store,
        yard: KeeperHome,
        agents: Mapping[str, Agent],
        holder: Callable[[], str],
        chance: Random,
        *,
        executors: ExecutorRegistry,
        usual_agent: str,
        offered: Mapping[str, str],
        usual: ResourceLimits = USUAL,
        terms: KeeperLeaseTerms = TERMS,
        patience: LaunchRetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        tidy: Callable[[], Awaitable[object]] | None = None,
        passes: AttemptTokens | None = None,
        mailboxes: MailboxService | None = None,
        probes: Probes | None = None,
        prices: Prices = NO_PRICES,
    ) -> None:
        self._terms = terms
        self._store = store
        self._yard = yard
        self._holder = holder
        self._chance = chance
        self._readying = AttemptPreparer(
            store, yard, agents, usual_agent, offered, usual, executors, passes
        )
        self._offering = MessageDelivery(store, mailboxes, yard)
        self._minding = minding = ProgramControl(yard)
        self._listening = OutputFollower(store, yard, minding, self._leave, self._offering.heard)
        beside = HelperPrograms(yard, minding, agents.get(SCRIPT), chance)
        self._discarding = SupersededAttempts(store, yard, minding, beside)
        self._prices = prices
        self._spending = BudgetEnforcer(store, minding, self._listening, prices)
        self._checking = CheckRunner(store, beside, probes)
        self._concluding = ResultChecker(store, self._checking, self._spending)
        self._gating = GateRunner(store, minding, self._listening, agents.get(SCRIPT), self._start)
        self._trying = PromptBuilder(store, patience or LaunchRetryPolicy(), sleep)
        self._posting = AttemptMailbox(yard, minding, mailboxes)
        if mailboxes is not None:
            mailboxes.set_callback(self._offering.acknowledged)
        self._tidy = tidy
        self._tidy_at = 0
        self._taken = False
        self._watch = KeeperWatchdog(yard)
        self._going: dict[int, Attempt] = {}

    @property
    def home(self) -> str:
        """The name of this keeper home in the store."""
        return self._yard.home

    def routes(self) -> Sequence[str]:
        """Return the routes that it serves when it owns the home."""
        return ROUTES if self._taken else ()

    def queue_wait(self, run_id: int) -> float | None:  # noqa: ARG002 - nothing waits here
        """Nothing waits here."""
        return 0.0

    def detach(self, run_id: int) -> None:
        """Leave an attempt running without this process."""
        if run_id in self._going:
            self._going[run_id].left = True

    async def open(self) -> bool:
        """Take the keeper home for this process; False if another one has it."""
        self._taken = self._yard.acquire()
        self._tidy_at = self._store.now() + TIDY_FIRST_MICROS
        return self._taken

    async def close(self) -> None:
        """Release the home; its keepers run until their lease ends."""
        self._taken = False
        await self._discarding.close()
        self._minding.close()
        self._yard.close()

    async def renew(self) -> tuple[float, Sequence[KeptAttempt]]:
        """Renew the lease of the home in the store and then for the keepers; return ended attempts.

        The store's lease is renewed first and is longer, and both count from before the renewal
        started. So a keeper has ended before the store considers it dead.
        """
        terms = self._terms
        promised = self._yard.boot_time() + terms.seconds
        until = self._store.now() + int(terms.promise.total_seconds() * 1_000_000)
        await self._store.write(renew_home_lease, self.home, self._yard.host, until)
        reach("kept_attempt.lease_promised")
        self._yard.extend_lease(promised)
        known = await self._store.read(list_kept_attempts, self.home)
        gone_on = [one for one in known if not one.current and one.run_id not in self._going]
        self._discarding.begin(gone_on, known)
        await stop_waiting_attempts(self._store, self._minding, known)
        await self._yard.delete_old(known)
        await self._tidy_now_and_then()
        return terms.renew, known

    async def take_samples(self) -> list[AttemptSample]:
        """Return samples of the running attempts, also between two programs."""
        followed = dict(self._listening.followed)
        between = [going.sign() for run_id, going in self._going.items() if run_id not in followed]
        return [*await self._watch.look(followed), *between]

    async def _tidy_now_and_then(self) -> None:
        now = self._store.now()
        if self._tidy is not None and now >= self._tidy_at:
            self._tidy_at = now + TIDY_MICROS
            await self._tidy()

    async def run(self, assignment: Assignment) -> AttemptReport:
        """Run one attempt to its end, or continue one.

        When cancelled, it ends the program and waits until nothing of it is left. Only an attempt
        that was let go leaves a program running.
        """
        run_id = assignment.lease.run_id
        going = Attempt(assignment, self._holder(), assignment.kept, assignment.kept is not None)
        self._going[run_id] = going
        work = asyncio.ensure_future(self._run(going))
        try:
            while not work.done():
                try:
                    await asyncio.wait({work})
                except asyncio.CancelledError:
                    going.stopped = True
                    if going.left or going.resting:
                        await detach_task(work)
                        if going.written:
                            raise
                        return going.reported(RELEASED)
                    self._stop(going)
            if work.exception() is not None and not going.left:
                await await_uninterrupted(asyncio.ensure_future(self._end(going)))
            return going.ended(work.result())
        finally:
            if self._going.get(run_id) is going:
                del self._going[run_id]
                self._posting.leave(run_id)
                self._offering.end(run_id)
            self._watch.ended.pop(run_id, None)

    async def _run(self, going: Attempt) -> AttemptReport:
        kind = going.assignment.task.kind
        try:
            going.assignment = apply_one_off_spec(going.assignment)
            ready = await self._readying.ready(going.assignment)
            going.grace = ready.bounds.grace_seconds
            given = going.assignment
            ended = await self._gating.passed(going, ready)
            ended = ended or await self._spending.admitted(going, ready.agent)
            if ended is not None:
                return ended
            if going.assignment is not given:  # by the gate, or with another model
                ready = await self._readying.ready(going.assignment)
            return going.told(await self._try(going, ready))
        except CANNOT_BE_HAD as fault:
            await self._end(going)
            return refusal_report(fault, kind)

    async def _try(self, going: Attempt, ready: PreparedAttempt) -> AttemptReport:
        """Launch the program of an attempt and follow it to its end, as often as necessary."""
        kind = going.assignment.task.kind
        while True:
            if going.starts(self._store.now()):
                going.begun = going.kept is not None and going.kept.launches > 0
                ended = await self._start(going, ready)
                if ended is not None:
                    return ended
            kept = going.kept
            if kept is None:
                return CANCELLED
            begin = partial(make_parser, ready, kept, self._prices, going.assignment)
            listen = partial(self._listening.to_the_end, kept, going.holder, begin)
            self._offering.begin(going.assignment, kept, ready)
            watched = partial(self._spending.watched, going, listen)
            (ending, hearing), broken = await self._posting.while_served(
                going.assignment, kept, watched, lambda: going.stopped
            )
            if not going.stopped and ended_before_start(kept, ending, going.assignment):
                going.kept = replace(
                    kept, relaunch_at=self._store.now() if kept.launches else kept.started_at
                )
                continue
            reach("kept_attempt.read")
            going.begun = await has_started(self._minding, kept, ending)
            if kind is TaskKind.SCRIPT:
                await read_result(self._minding, kept, going.assignment, hearing.reader)
            words = await add_last_output(self._minding, kept, ending)
            verdict = hearing.left(result_from_output(words, hearing.reader))
            pause = None
            if kind is TaskKind.AGENT and not going.stopped and broken is None:
                hard = ready.bounds.hard_seconds
                pause = decide_relaunch(
                    kept, verdict, self._trying.patience, hard, self._store.now()
                )
            asked = await is_waiting_for_answer(self._store, kept)
            if pause is None or asked:
                report = attempt_report(ending, verdict, kind, ready.bounds)
                unseen = ready.is_open_agent(going.assignment.task)
                wrote = partial(has_written, self._yard, kept, unseen=unseen)
                report = explain_loss(report, self._watch.ended.get(kept.run_id), wrote)
                report = requeue_until_lifted(report, verdict, going.assignment, self._store.now())
                report = explain_failure(report, broken)
                if asked:
                    return report  # not a success, so no checks apply
                return await self._concluding.concluded(report, going, ready, ending, hearing)
            await self._pause(pause, going.holder)
            going.kept = pause.kept

    async def _start(self, going: Attempt, ready: PreparedAttempt) -> AttemptReport | None:
        """Record an attempt and start its keeper, unless it is stopped before.

        Another launch of an attempt waits first.
        """
        assignment, before, bounds = going.assignment, going.kept, ready.bounds
        if before is None:
            session = await self._trying.session(assignment, ready.agent, ready.wish)
            tries, began = 0, self._store.now()
        else:
            session, tries, began = before.session, before.launches, before.started_at
            going.resting = True
            await self._trying.wait(before.relaunch_at or 0)
            going.resting = False
            bounds = remaining_limits(bounds, self._store.now() - began)
            if bounds.hard_seconds is not None and bounds.hard_seconds <= 0:
                return timeout_report()
        kept = KeptAttempt(
            run_id=assignment.lease.run_id,
            epoch=assignment.lease.epoch,
            home=self.home,
            nonce=f"{int(self._chance.random() * 2**63):016x}",
            boot=self._yard.boot,
            executor=ready.site.executor,
            launches=tries,
            started_at=began,
            session=session,
            gate_reply=going.gate,
            agent=ready.agent.name,
            can_write_outside=ready.room.writes or ready.is_open_agent(assignment.task),
        )
        files = self._posting.files(assignment, kept)
        told = await self._trying.told(assignment, ready, going.holder, session, files)
        if isinstance(told, AttemptReport):
            return told
        kept = replace(kept, prompt_text=told.said)
        room = self._posting.told(resume_session(add_steering(ready, assignment), session), kept)
        prepared = ready.agent.prepare(told.wish, room)
        if going.gate != ASKING:
            await self._checking.begin(assignment, anew=before is None)
        going.written = True
        aloud = start_notices(assignment, kept)
        if not await until_available(
            lambda: self._store.write(record_launch, kept, going.holder, aloud)
        ):
            await self._leave(kept)
        await self._posting.open(assignment, kept)
        if going.stopped:
            return CANCELLED
        if isinstance(
            made := await self._posting.bring(kept, told, prepared, ready, room), AttemptReport
        ):
            await self._drop(going, kept)
            return made
        reach("kept_attempt.recorded")
        start = self._yard.start(kept, room, ready.site, ready.role, made, bounds)
        await self._started(going, kept, asyncio.ensure_future(start))
        self._stop_if_told(going)
        return None

    async def _started(
        self, going: Attempt, kept: KeptAttempt, starting: asyncio.Future[None]
    ) -> None:
        """Wait until a keeper has started, or delete the row if none can be started."""
        left = await await_uninterrupted(starting)  # the watchdog must not check it while it starts
        try:
            starting.result()
        except CANNOT_BE_HAD:
            await self._drop(going, kept)
            raise
        going.kept, going.begun = kept, True
        reach("kept_attempt.started")
        if left:
            raise asyncio.CancelledError

    async def _drop(self, going: Attempt, kept: KeptAttempt) -> None:
        """Delete the row of an attempt that did not start."""
        going.kept = None
        await until_available(lambda: self._store.write(drop_kept_attempt, kept.run_id, kept.epoch))

    async def _pause(self, pause: Relaunch, holder: str) -> None:
        """Record a failed launch before anything waits."""
        if not await until_available(lambda: self._store.write(schedule_relaunch, pause, holder)):
            await self._leave(pause.kept)

    async def _leave(self, kept: KeptAttempt) -> NoReturn:
        """Stop following an attempt whose run has ended or belongs to another worker."""
        log.warning("run.lease_lost", extra={"run_id": kept.run_id, "attempt": kept.epoch})
        self._going[kept.run_id].left = True
        raise Fenced(kept.run_id, kept.epoch)

    def _stop(self, going: Attempt) -> None:
        """Request the end of a program; its output is followed as before."""
        going.halting.halted.set()
        for kept in filter(None, (going.kept, going.halting.holding)):
            self._minding.cancel(kept, going.grace, "cancelled")

    def _stop_if_told(self, going: Attempt) -> None:
        if going.stopped:
            self._stop(going)

    async def _end(self, going: Attempt) -> None:
        """End a program that cannot be followed."""
        if going.kept is not None:
            await self._minding.end(going.kept, UNHEARD)
