"""Concluding: between the end of a program and its report, what it says of itself is looked at."""

from __future__ import annotations

import json
from dataclasses import replace

from rota.flow.execute.checking import Checking
from rota.flow.execute.going import Going
from rota.flow.execute.hearing import Hearing
from rota.flow.execute.patiently import patiently
from rota.flow.execute.readying import Ready
from rota.flow.execute.spending import Spending, is_stop
from rota.model.asides import NOTHING
from rota.model.keeping import Ending
from rota.model.outcomes import Asked, Report, Succeeded
from rota.model.tasks import TaskKind
from rota.ports.runner import Assignment
from rota.ports.store import Store
from rota.rules.gates import recorded
from rota.rules.next_checks import next_run
from rota.rules.phrases import SPEC, Asker, action_ids, question_in


class Concluding:
    """Says what the reports of attempts come to."""

    def __init__(self, store: Store, checking: Checking, spending: Spending) -> None:
        self._store = store
        self._spending = spending
        self._checking = checking

    async def concluded(
        self, report: Report, going: Going, ready: Ready, ending: Ending, hearing: Hearing
    ) -> Report:
        """Return a report with everything that goes on record beside its outcome."""
        kept = going.kept
        if kept is not None and not going.stopped and is_stop(ending):
            return await self._spending.asking(report, going, ending.detail)
        if kept is None or not isinstance(report.outcome, Succeeded):
            return report
        assignment = going.assignment
        asked = await self._asked_in_words(report.outcome, assignment)
        if asked is not None:
            return replace(report, outcome=asked)  # it is not done, so there is nothing to check
        said = recorded(going.gate)
        aside = replace(
            report.aside or NOTHING,
            remembered=None if said is None else said.state,
            next_check=next_run(
                assignment.task,
                assignment.lease.run_id,
                report.outcome.next_check,
                self._store.now(),
            ),
        )
        if aside != NOTHING:
            report = replace(report, aside=aside)
        return await self._checking.checked(
            report, assignment, ready, kept, hearing.tools, going.halting
        )

    async def _asked_in_words(self, outcome: Succeeded, assignment: Assignment) -> Asked | None:
        """Return what an answer asks in words, if the task wants it read so."""
        task, lease = assignment.task, assignment.lease
        wanted = task.kind is TaskKind.AGENT and task.spec.get(SPEC)
        answer = None if outcome.result is None else json.loads(outcome.result)
        if not wanted or outcome.silent or not isinstance(answer, str):
            return None
        questions = await patiently(lambda: self._store.list_questions([lease.run_id]))
        asker = Asker(
            run=lease.run_id,
            attempt=lease.epoch,
            task=task.name,
            space=task.space,
            asked=action_ids([question.action for question in questions]),
        )
        return question_in(answer, asker, self._store.now())
