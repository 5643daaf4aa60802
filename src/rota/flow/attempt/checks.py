"""The gate before an attempt, and the checks after it.

Checks run between the end of the program and the settlement, while the attempt is still recorded: a
process that takes over reads the exit record and checks again. The number of evaluations is stored,
so that a check that crashes the daemon does so at most twice.

A gate is recorded as an attempt with an empty gate answer, so that the next process knows what is
running. Its answer is stored with the work. A gate that fails is a failure of the run.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from rota.errors import Invalid, Unavailable
from rota.faultpoints import reach
from rota.flow.attempt.attempt import (
    Attempt,
    CheckInterrupt,
    add_last_output,
    attempt_report,
    exit_text,
    gone_report,
    read_result,
    result_from_output,
)
from rota.flow.attempt.budget import BudgetEnforcer, is_stop
from rota.flow.attempt.output import OutputParser
from rota.flow.attempt.prepare import PreparedAttempt
from rota.flow.attempt.programs import HelperPrograms, OutputFollower, ProgramControl
from rota.model.agents import AgentSpec, OutputFormat
from rota.model.attempts import (
    ASKING,
    Assignment,
    AttemptReport,
    ExitReason,
    ExitRecord,
    Failed,
    KeptAttempt,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.checks import Check, CheckKind, CheckResult, CheckState, SuppressionReason
from rota.model.events import EventName
from rota.model.ids import Epoch, RunId
from rota.model.instants import from_micros
from rota.model.programs import Site
from rota.model.settlement import NOTHING, AttemptNotes
from rota.model.tasks import TaskKind
from rota.ports.agent import Agent
from rota.ports.host import Probes
from rota.rules.approvals import SPEC, QuestionAuthor, action_ids, question_in
from rota.rules.checks import (
    DEFAULT_SECONDS,
    GATE,
    NO_NETWORK,
    CheckedOutcome,
    GateReply,
    GateSpec,
    add_gate_input,
    can_reach_outside,
    checks_in,
    evaluate,
    failure_message,
    findings_to_json,
    gate_in,
    name_of,
    next_run,
    read_reply,
    reply_from_json,
    reply_to_json,
    text_of,
)
from rota.store.attempts import record_check_start
from rota.store.store import Store, until_available
from rota.store.tasks import get_state
from rota.store.views import list_questions, list_run_events

CHECK_FAILED = "check_failed"
STOPPED = "it was stopped before this check"
TOO_LONG = "evaluating it took too long: simplify it"
MOST_LOOKS = 2
CUT_OFF = (
    f"Rota was terminated {MOST_LOOKS} times while it evaluated the checks of this run: "
    "check the log, simplify them, and run it again"
)
SINCE = {
    True: "",
    False: "; nothing has changed it since the attempt began",
    None: "; how it was when the attempt began is not on record",
}
Answer = TypeVar("Answer")


class CheckRunner:
    """Evaluates the checks of successful attempts."""

    def __init__(self, store: Store, beside: HelperPrograms, probes: Probes | None) -> None:
        self._store = store
        self._beside = beside
        self._probes = probes

    async def checked(
        self,
        report: AttemptReport,
        assignment: Assignment,
        ready: PreparedAttempt,
        kept: KeptAttempt,
        tools: Collection[str],
        halting: CheckInterrupt,
    ) -> AttemptReport:
        """Return the report with the results of the checks; other reports are unchanged."""
        if not isinstance(report.outcome, Succeeded):
            return report
        aside = report.notes or NOTHING
        try:
            checks = checks_in(assignment.task.spec)
        except Invalid as fault:
            return replace(report, outcome=_failed(str(fault), retryable=False))
        if not checks:
            return report
        looks = await until_available(
            lambda: self._store.write(record_check_start, kept.run_id, kept.epoch)
        )
        if looks > MOST_LOOKS:
            return replace(report, outcome=_failed(CUT_OFF, retryable=False), messages=())
        reach("check.begin")
        await self._beside.end(kept)
        called = {*tools, *await self._called(checks, kept)}
        outcome = CheckedOutcome(report.outcome.result, called)
        findings = []
        for check in checks:
            look = _Look(self, check, outcome, assignment, ready, kept, halting)
            findings.append(await look.found())
            reach("check.evaluated")
        against = failure_message(findings)
        verdict = CheckState.VERIFIED if against is None else CheckState.CONTRADICTED
        aside = replace(aside, check_results=findings_to_json(findings), check_state=verdict)
        reach("check.end")
        if against is None:
            return replace(report, notes=aside)
        return replace(report, outcome=_failed(against), messages=(), notes=aside)

    async def _called(self, checks: Collection[Check], kept: KeptAttempt) -> set[str]:
        """Return the tools that earlier launches called, from recorded events."""
        if kept.launches == 0 or all(check.kind is not CheckKind.TOOL_CALLED for check in checks):
            return set()
        began = from_micros(kept.started_at)
        return {
            str(event.data.get("tool"))
            for event in await self._store.read(list_run_events, kept.run_id)
            if event.name is EventName.TOOL_CALL and event.at >= began
        }

    async def begin(self, assignment: Assignment, *, anew: bool) -> None:
        """Note the state of the files that an attempt is to write."""
        checks = checks_in(assignment.task.spec)
        paths = [check.wanted for check in checks if check.kind is CheckKind.FILE_NEWER]
        if self._probes is not None and paths:
            await self._probes.note_files(*_where(assignment), paths, anew=anew)

    async def file(self, check: Check, assignment: Assignment) -> CheckResult:
        """Check whether a file was written since the attempt began."""
        name = name_of(check)
        if self._probes is None:
            return _unseen(name)
        seen = await self._probes.stat_file(*_where(assignment), check.wanted)
        if isinstance(seen, str):
            return CheckResult(name, passed=False, evidence=seen)
        at = from_micros(seen.written)
        words = f"it has {seen.size} bytes and was written at {at:%Y-%m-%d %H:%M:%S} UTC"
        return CheckResult(name, bool(seen.changed), words + SINCE[seen.changed])

    async def url(self, check: Check, site: Site, halting: CheckInterrupt) -> CheckResult:
        """Check whether a URL answers."""
        name = name_of(check)
        if not can_reach_outside(site):
            return CheckResult(name, passed=False, evidence=NO_NETWORK)
        if self._probes is None:
            return _unseen(name)
        seconds = check.seconds or DEFAULT_SECONDS / 2
        seen = await halting.unless(self._probes.check_url(check.wanted, check.contains, seconds))
        return CheckResult(name, *(seen or (False, STOPPED)))

    async def pattern(self, look: _Look) -> CheckResult:
        """Check whether a pattern matches the result."""
        check, space = look.check, look.assignment.task.space
        text = text_of(look.outcome.result)
        found = await self._evaluated(look, lambda on: on.search(space, check.wanted, text))
        if isinstance(found, CheckResult):
            return found
        told = "the result matches" if found else "the result does not match"
        return CheckResult(name_of(check), not found, told)

    async def schema(self, look: _Look) -> CheckResult:
        """Check whether the result matches a schema."""
        check, space, result = look.check, look.assignment.task.space, look.outcome.result
        faults = await self._evaluated(
            look, lambda on: on.check_result(space, check.wanted, result)
        )
        if isinstance(faults, CheckResult):
            return faults
        return CheckResult(
            name_of(check), not faults, "; ".join(faults) or "the result matches the schema"
        )

    async def _evaluated(
        self, look: _Look, ask: Callable[[Probes], Awaitable[Answer | None]]
    ) -> Answer | CheckResult:
        """Return the result of an evaluation, or a failed check if it took too long."""
        name = name_of(look.check)
        if self._probes is None:
            return _unseen(name)
        try:
            answer = await look.halting.unless(ask(self._probes))
        except Unavailable as fault:
            return CheckResult(name, passed=False, evidence=str(fault))
        if answer is not None:
            return answer
        halted = look.halting.halted.is_set()
        return CheckResult(name, passed=False, evidence=STOPPED if halted else TOO_LONG)

    async def command(self, look: _Look) -> CheckResult:
        """Run a program with the site of the attempt; it reads the result on standard input."""
        check, ready = look.check, look.ready
        given = {"run": look.kept.run_id, "result": json.loads(look.outcome.result or "null")}
        wish = AgentSpec(
            program=tuple(check.wanted), instructions=json.dumps(given, ensure_ascii=False)
        )
        seconds = check.seconds or DEFAULT_SECONDS
        bounds = replace(
            ready.bounds, hard_seconds=seconds, idle_seconds=None, output_bytes=1 << 20
        )
        ran = await self._beside.run(look.kept, ready, wish, bounds, look.halting.hold)
        return _ran(name_of(check), ran.ending, ran.words, seconds)


@dataclass(frozen=True, slots=True)
class _Look:
    """One evaluation of one check."""

    eyes: CheckRunner
    check: Check
    outcome: CheckedOutcome
    assignment: Assignment
    ready: PreparedAttempt
    kept: KeptAttempt
    halting: CheckInterrupt

    async def found(self) -> CheckResult:
        """Return the result of the check."""
        if self.halting.halted.is_set():
            return CheckResult(name_of(self.check), passed=False, evidence=STOPPED)
        pure = evaluate(self.check, self.outcome)
        if pure is not None:
            return pure
        match self.check.kind:
            case CheckKind.FILE_NEWER:
                return await self.eyes.file(self.check, self.assignment)
            case CheckKind.URL:
                return await self.eyes.url(self.check, self.ready.site, self.halting)
            case CheckKind.COMMAND:
                return await self.eyes.command(self)
            case CheckKind.JSON_SCHEMA:
                return await self.eyes.schema(self)
            case _:
                return await self.eyes.pattern(self)


def _where(assignment: Assignment) -> tuple[tuple[RunId, Epoch], str, str | None]:
    """Return the attempt with the space and folder of its files."""
    lease, task = assignment.lease, assignment.task
    folder = task.spec.get("folder")
    return (lease.run_id, lease.epoch), task.space, None if folder is None else str(folder)


def _ran(name: str, ending: ExitRecord | None, words: str, seconds: float) -> CheckResult:
    if ending is None:
        return CheckResult(name, passed=False, evidence=f"it could not be started: {words}")
    if ending.reason is ExitReason.EXITED:
        how = f"it ended with {ending.code}"
    elif ending.reason is ExitReason.HARD_TIMEOUT:
        how = f"it took longer than {seconds:g} s and was terminated"
    else:
        how = f"it ended by {ending.signal or ending.reason}"
    passed = ending.reason is ExitReason.EXITED and ending.code == 0
    return CheckResult(name, passed, f"{how}\n{words}".strip() if not passed else how)


def _unseen(name: str) -> CheckResult:
    return CheckResult(name, passed=False, evidence="this kind of check is not available here")


def _failed(message: str, *, retryable: bool = True) -> Failed:
    return Failed(code=CHECK_FAILED, message=message, retryable=retryable)


class ResultChecker:
    """Completes the reports of attempts."""

    def __init__(self, store: Store, checking: CheckRunner, spending: BudgetEnforcer) -> None:
        self._store = store
        self._spending = spending
        self._checking = checking

    async def concluded(
        self,
        report: AttemptReport,
        going: Attempt,
        ready: PreparedAttempt,
        ending: ExitRecord,
        hearing: OutputParser,
    ) -> AttemptReport:
        """Return a report with everything that is recorded beside its outcome."""
        kept = going.kept
        if kept is not None and not going.stopped and is_stop(ending):
            return await self._spending.asking(report, going, ending.detail)
        if kept is None or not isinstance(report.outcome, Succeeded):
            return report
        assignment = going.assignment
        asked = await self._asked_in_words(report.outcome, assignment)
        if asked is not None:
            return replace(report, outcome=asked)  # not a success, so no checks apply
        said = reply_from_json(going.gate)
        aside = replace(
            report.notes or NOTHING,
            remembered=None if said is None else said.state,
            next_check=next_run(
                assignment.task,
                assignment.lease.run_id,
                report.outcome.next_check,
                self._store.now(),
            ),
        )
        if aside != NOTHING:
            report = replace(report, notes=aside)
        return await self._checking.checked(
            report, assignment, ready, kept, hearing.tools, going.halting
        )

    async def _asked_in_words(
        self, outcome: Succeeded, assignment: Assignment
    ) -> WaitingForAnswer | None:
        """Return the question that an answer asks in phrases, if the task enables this."""
        task, lease = assignment.task, assignment.lease
        wanted = task.kind is TaskKind.AGENT and task.spec.get(SPEC)
        answer = None if outcome.result is None else json.loads(outcome.result)
        if not wanted or outcome.silent or not isinstance(answer, str):
            return None
        questions = await until_available(lambda: self._store.read(list_questions, [lease.run_id]))
        asker = QuestionAuthor(
            run=lease.run_id,
            attempt=lease.epoch,
            task=task.name,
            space=task.space,
            asked=action_ids([question.action for question in questions]),
        )
        return question_in(answer, asker, self._store.now())


GATE_FAILED = "gate_failed"
MOST_OUTPUT = 1024 * 1024

Start = Callable[[Attempt, PreparedAttempt], Awaitable[AttemptReport | None]]


class GateRunner:
    """Runs the gates of tasks."""

    def __init__(
        self,
        store: Store,
        minding: ProgramControl,
        listening: OutputFollower,
        script: Agent | None,
        start: Start,
    ) -> None:
        self._store = store
        self._minding = minding
        self._listening = listening
        self._script = script
        self._start = start

    async def passed(self, going: Attempt, ready: PreparedAttempt) -> AttemptReport | None:
        """Return the report of an attempt that ends at its gate; None if its work starts.

        A run that continues with an answer has passed its gate before.
        """
        assignment = going.assignment
        if assignment.kept is not None and assignment.kept.gate_reply != ASKING:
            going.gate = assignment.kept.gate_reply
            _hand_on(going)
            return None
        gate = gate_in(assignment.task.spec)
        if gate is None and going.kept is not None:
            await self._dropped(going)
        if gate is None or assignment.answers:
            return None
        going.gate = ASKING
        report = await self._asked(going, await self._ready(going, ready, gate))
        if report is not None:
            return report
        _hand_on(going)
        return None

    async def _asked(self, going: Attempt, ready: PreparedAttempt) -> AttemptReport | None:
        """Run the gate to its end and parse its answer."""
        while True:
            if going.kept is None:
                ended = await self._start(going, ready)
                if ended is not None or going.kept is None:
                    return ended
            kept = going.kept
            begin = partial(_hearing_of, ready)
            ending, hearing = await self._listening.to_the_end(kept, going.holder, begin)
            going.kept = None
            never = ending.reason is ExitReason.LOST_NEVER_STARTED
            if going.stopped or not never or kept is not going.assignment.kept:
                break
        await read_result(self._minding, kept, going.assignment, hearing.reader)
        words = await add_last_output(self._minding, kept, ending)
        verdict = result_from_output(words, hearing.reader)
        report = attempt_report(ending, verdict, TaskKind.SCRIPT, ready.bounds)
        if not isinstance(report.outcome, Succeeded):
            return _blamed(report)
        try:
            said = read_reply(report.outcome.result)
        except Invalid as fault:
            return replace(report, outcome=Failed(code=GATE_FAILED, message=str(fault)))
        going.gate = reply_to_json(said)
        return None if said.wake else _quiet(said, ending)

    async def _dropped(self, going: Attempt) -> None:
        """End the gate of a task that no longer has one."""
        if going.kept is not None:
            await self._minding.end(going.kept, "its task no longer has a gate")
            going.kept = None

    async def _ready(
        self, going: Attempt, ready: PreparedAttempt, gate: GateSpec
    ) -> PreparedAttempt:
        """Return a prepared attempt for the gate: a script of the task with its stored state."""
        if self._script is None:
            raise Unavailable("scripts cannot run here")
        lease = going.assignment.lease
        stands = await until_available(lambda: self._store.read(get_state, lease.task_id, GATE))
        given: dict[str, Any] = {
            "run": lease.run_id,
            "payload": json.loads(lease.payload),
            "state": None if stands is None else json.loads(stands.value),
        }
        wish = AgentSpec(
            program=gate.words,
            instructions=json.dumps(given, ensure_ascii=False),
            output=OutputFormat.LAST_LINE,
        )
        bounds = replace(
            ready.bounds, hard_seconds=gate.seconds, idle_seconds=None, output_bytes=MOST_OUTPUT
        )
        return ready._replace(agent=self._script, wish=wish, bounds=bounds)


def _hearing_of(ready: PreparedAttempt) -> OutputParser:
    """Return a new output parser for a gate."""
    return OutputParser(ready.agent.reader(ready.wish, ready.room))


def _hand_on(going: Attempt) -> None:
    """Pass the `input` of the gate to the work."""
    said = reply_from_json(going.gate)
    if said is not None:
        assignment = going.assignment
        payload = add_gate_input(assignment.lease.payload, said)
        going.assignment = assignment._replace(lease=assignment.lease._replace(payload=payload))


def _blamed(report: AttemptReport) -> AttemptReport:
    """Return the report of an attempt whose gate failed."""
    outcome = report.outcome
    if not isinstance(outcome, Failed):
        return report
    message = f"its gate failed: {outcome.message}"
    return replace(report, outcome=replace(outcome, code=GATE_FAILED, message=message))


def _quiet(said: GateReply, ending: ExitRecord) -> AttemptReport:
    result = None if said.reason is None else json.dumps(said.reason, ensure_ascii=False)
    aside = AttemptNotes(suppressed=SuppressionReason.BY_GATE, remembered=said.state)
    outcome = Succeeded(result=result)
    return AttemptReport(
        outcome=outcome, exit=exit_text(ending), notes=aside, away=gone_report(ending)
    )
