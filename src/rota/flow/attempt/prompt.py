"""What a launch needs: the session, the prompt and its time."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

from rota.flow.attempt.attempt import LaunchRetryPolicy
from rota.flow.attempt.output import OutputParser, ProgressReporter, SessionTracker
from rota.flow.attempt.prepare import (
    SCRIPT,
    PreparedAttempt,
    find_schedule_of_run,
    is_reader,
    payload_text,
    thread_key,
)
from rota.model.agents import AgentSpec, AgentUsage, SessionMode
from rota.model.attempts import AgentSessionRef, Assignment, AttemptReport, Cancelled, KeptAttempt
from rota.model.budgets import Prices
from rota.model.runs import Question, Run, RunState
from rota.model.sessions import MAX_PROMPT_TEXT
from rota.model.tasks import TaskKind
from rota.model.threads import ThreadMessage
from rota.model.views import RunFilter
from rota.ports.agent import Agent, AgentWorkspace
from rota.rules.approvals import APPROVAL, decision, question_text
from rota.rules.budgets import add_price
from rota.rules.prompts import (
    PreviousResult,
    Prompt,
    PromptAnswer,
    PromptMessage,
    plain_prompt,
    prompt_message,
    render_prompt,
)
from rota.store.sessions import find_session
from rota.store.store import Store, until_available
from rota.store.tasks import find_space
from rota.store.threads import assign_messages
from rota.store.views import list_questions, list_runs

ASKED = ("ask", APPROVAL)
"""Kinds of questions that the run has asked itself."""
LONGEST_PREVIOUS = 64 * 1024
READ_ALREADY = AttemptReport(outcome=Cancelled(reason="its messages were read already"))


class AgentPrompt(NamedTuple):
    """The prompt of an agent: the agent spec with it, and the text that is stored."""

    wish: AgentSpec
    said: str = ""
    carrying: tuple[ThreadMessage, ...] = ()
    """Messages whose files must be written before the launch."""
    again: Callable[[Mapping[int, ThreadMessage]], AgentSpec] | None = None
    """Builds the spec again with changed messages."""

    def having(self, lying: Sequence[ThreadMessage]) -> AgentPrompt:
        """Return the prompt after the files were written; usually unchanged."""
        if self.again is None or not any(message.lost for message in lying):
            return self
        return self._replace(wish=self.again({message.id: message for message in lying}))


class PromptBuilder:
    """Collects what a launch needs."""

    def __init__(
        self, store: Store, patience: LaunchRetryPolicy, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._store = store
        self._sleep = sleep
        self.patience = patience

    async def session(
        self, assignment: Assignment, agent: Agent, wish: AgentSpec
    ) -> AgentSessionRef | None:
        """Return the session in which a run continues.

        A run that asked or was lost continues in its own session, one with a shared session in
        that of its thread; never in one of another agent.
        """
        if not agent.capabilities.resume:
            return None
        own = await self._own_session(assignment, agent)
        if own is not None or wish.session is SessionMode.ISOLATED:
            return own
        run_id = assignment.lease.run_id
        return await until_available(
            lambda: self._store.read(find_session, run_id, agent.name, shared=True, own=False)
        )

    async def _own_session(self, assignment: Assignment, agent: Agent) -> AgentSessionRef | None:
        """Return the session in which a run has asked, or worked when it was lost."""
        lease = assignment.lease
        if not lease.question_count and not lease.losses:
            return None
        run_id = lease.run_id
        return await until_available(
            lambda: self._store.read(find_session, run_id, agent.name, shared=False, own=True)
        )

    async def told(
        self,
        assignment: Assignment,
        ready: PreparedAttempt,
        worker: str,
        session: AgentSessionRef | None,
        files: str | None = None,
    ) -> AgentPrompt | AttemptReport:
        """Return the prompt of a run, or a report if its messages were read already.

        In the session in which it has asked, a run gets only the newest answer and the messages
        since, and again those with files, whose paths change with each launch (folder `files`).
        """
        agent, wish = ready.agent, ready.wish
        if assignment.task.kind is not TaskKind.AGENT or agent.name == SCRIPT:
            return AgentPrompt(wish)  # a script, or the gate of an agent
        messages = await self._messages(assignment, worker)
        if is_reader(assignment) and not messages:
            return READ_ALREADY
        answers = await self._answers(assignment)
        since = answers[-1].epoch if answers else 0
        sections = agent.capabilities.envelope if wish.envelope is None else wish.envelope
        whole = await self._envelope(assignment, sections=sections)
        if answers and session is not None and await self._asked_in(assignment, agent, session):
            whole = replace(whole, instructions="", given="")
            messages = [one for one in messages if (one.epoch or 0) > since or one.files]
            answers = answers[-1:]
        elif wish.previous_result:
            whole = replace(whole, previous=await self._previous(assignment))
        whole = replace(whole, answers=tuple(map(_answered, answers)))

        def sent(lying: Mapping[int, ThreadMessage]) -> Prompt:
            told = tuple(prompt_message(lying.get(one.id, one), files) for one in messages)
            return replace(whole, messages=told)

        def made(lying: Mapping[int, ThreadMessage]) -> AgentSpec:
            envelope = sent(lying)
            return replace(
                wish, instructions=(render_prompt if sections else plain_prompt)(envelope)
            )

        carrying = tuple(message for message in messages if message.files)
        return AgentPrompt(made({}), _said(sent({})), carrying, made)

    async def _asked_in(
        self, assignment: Assignment, agent: Agent, session: AgentSessionRef
    ) -> bool:
        """Return whether the run has asked a question in this session."""
        own = await self._own_session(assignment, agent)
        return own is not None and own.id == session.id

    async def wait(self, until: int) -> None:
        """Wait until an instant."""
        while (left := until - self._store.now()) > 0:
            await self._sleep(left / 1_000_000)

    async def _envelope(self, assignment: Assignment, *, sections: bool) -> Prompt:
        lease, task = assignment.lease, assignment.task
        return Prompt(
            task_id=task.id,
            title=task.title or task.name,
            run_id=lease.run_id,
            space=task.space,
            zone=await self._zone(assignment) if sections else "",
            thread=thread_key(assignment),
            planned=lease.slot_at,
            instructions=str(task.spec.get("instructions", "")),
            given=payload_text(assignment),
            interrupted=lease.losses > 0,
        )

    async def _zone(self, assignment: Assignment) -> str:
        """Return the time zone of the run's schedule or space."""
        schedule = await find_schedule_of_run(self._store, assignment.lease)
        if schedule is not None:
            return str(json.loads(schedule.rule).get("timezone") or "UTC")
        space = assignment.task.space
        return (await until_available(lambda: self._store.read(find_space, space))).timezone

    async def _messages(self, assignment: Assignment, worker: str) -> list[ThreadMessage]:
        """Return the messages of a reader run, and those that an earlier launch acknowledged."""
        lease = assignment.lease
        if lease.thread is None:
            return []
        assign = partial(self._store.write, assign_messages, lease.run_id, lease.epoch, worker)
        return await until_available(assign)

    async def _answers(self, assignment: Assignment) -> list[Question]:
        """Return the answered questions of the run, the newest last."""
        if not assignment.answers:
            return []
        run_id = assignment.lease.run_id
        questions = await until_available(lambda: self._store.read(list_questions, [run_id]))
        return [q for q in questions if q.kind in ASKED and q.answer is not None]

    async def _previous(self, assignment: Assignment) -> PreviousResult | None:
        """Return the result of the last successful run of the task before this one."""
        lease = assignment.lease
        wanted = RunFilter(
            task_id=lease.task_id, state=RunState.SUCCEEDED, before=lease.run_id, limit=1
        )
        found = await until_available(lambda: self._store.read(list_runs, wanted))
        return _came_to(found[0]) if found else None


def _came_to(run: Run) -> PreviousResult:
    result = "" if run.result is None else json.loads(run.result)
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    ended: datetime | None = run.finished_at
    return PreviousResult(run.id, ended, text[:LONGEST_PREVIOUS])


def _answered(question: Question) -> PromptAnswer:
    asked, answer = question_text(question), decision(question)
    return PromptAnswer(asked, answer, question.answered_by, question.answered_at)


def _said(whole: Prompt) -> str:
    """Return the stored text of a prompt; for messages only their texts."""
    if whole.messages:
        said = "\n".join(f"{sent.sender}: {_words(sent)}" for sent in whole.messages)
    else:
        said = plain_prompt(replace(whole, previous=None))
    return said[:MAX_PROMPT_TEXT]


def _words(sent: PromptMessage) -> str:
    names = ", ".join(medium.name for medium in sent.media)
    return " ".join(filter(None, (sent.text, names and f"[{names}]")))


def resume_session(room: AgentWorkspace, session: AgentSessionRef | None) -> AgentWorkspace:
    """Return the workspace of a launch that continues a session."""
    if session is None:
        return room
    used = AgentUsage(input=session.input, output=session.output, cached=session.cached)
    return replace(room, session=session.id, used=used)


def make_parser(
    ready: PreparedAttempt, kept: KeptAttempt, prices: Prices, assignment: Assignment
) -> OutputParser:
    """Return a new output parser for an attempt."""
    following = SessionTracker.of(ready.agent, kept.session, ready.wish)
    reader = ready.agent.reader(ready.wish, resume_session(ready.room, kept.session))
    charge = partial(add_price, model=ready.wish.model, prices=prices)
    return OutputParser(reader, following, charge, ProgressReporter.of(assignment, kept))
