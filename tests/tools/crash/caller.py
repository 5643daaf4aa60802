"""The outside caller: a program that defines, queues, cancels and answers, and notes every answer.

It notes what was acknowledged only after it was. Killed anywhere, it is started again with the same
number and does everything once more under the same keys, so what it gets must be the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from rota.errors import Conflict, IllegalMove, NotFound, RotaError, Unavailable
from rota.flow.define import keys, schedules, spaces, task_state, tasks
from rota.flow.define.policies import policy_from
from rota.flow.define.runs import make_template
from rota.flow.define.schedules import ScheduleSpec
from rota.flow.lookup import get_task
from rota.library.rota import Rota
from rota.model.attempts import KeptAttempt, NewEvent, Relaunch
from rota.model.audit import NewAuditEntry
from rota.model.budgets import Amounts, BudgetCaps, BudgetHolder, BudgetScope
from rota.model.clock_jumps import Leap
from rota.model.events import EventName
from rota.model.heartbeats import AttemptSample, MachineLoad, MissedHeartbeat
from rota.model.ids import Epoch, RunId
from rota.model.instants import from_micros, to_micros
from rota.model.keys import EVERY_SCOPE, Key
from rota.model.runs import FINISHED, RunBatch, RunSource, RunState
from rota.model.spaces import Limit, LimitScope
from rota.model.tasks import After, AfterOn, Policy, Retry
from rota.model.threads import MessageFile, NewFile, NewMessage, NewThread
from rota.rules.permissions import LOCAL
from rota.rules.plans import plan_schedule
from rota.rules.tokens import SECRET_BYTES, secret_digest
from rota.store.attempts import (
    adopt_attempt,
    drop_kept_attempt,
    fence_home,
    record_check_start,
    record_launch,
    record_output,
    renew_home_lease,
    schedule_relaunch,
)
from rota.store.audit import find_audit_entry, record_answer, record_request
from rota.store.budgets import reserve_budget, set_budget
from rota.store.claims import set_limits
from rota.store.clock_jumps import record_clock_jump, record_clock_return
from rota.store.heartbeats import record_heartbeats, record_machine_sample, record_missed_heartbeats
from rota.store.keys import find_key, touch_keys
from rota.store.notifications import drop_notification_target, set_notification_target
from rota.store.plans import apply_plans, list_due_schedules
from rota.store.sessions import archive_session, clear_session, resume_session
from rota.store.store import HookedStore, RequestAudit
from rota.store.tasks import list_schedules, put_state
from rota.store.threads import (
    acknowledge_messages,
    add_message,
    assign_messages,
    put_thread,
    record_mailbox_number,
    requeue_reader,
)
from tests.tools.crash.attempt_requests import approve, speak
from tests.tools.crash.witness import note, noted

Answer = TypeVar("Answer")

GIVE_UP_SECONDS: Final = 40.0
PAUSE_SECONDS: Final = 0.02
LOOKS: Final = 250
LOOKS_FOR_DUE: Final = 10_000
"""One after the other: a slot is due for a millisecond before the daemon has planned it."""
WORK: Final = "tests.tools.crash.work"
GROUP: Final = "narrow"
GROUP_CAP: Final = 2
FAR: Final = timedelta(hours=1)
NOBODYS: Final = 2**40
AT_ONCE: Final = Retry(attempts=3, base=timedelta(milliseconds=30))

TASKS: Final[dict[str, tuple[str, dict[str, Any], After | None]]] = {
    "tick": ("quick", {"overlap": "allow"}, None),
    "tock": ("short", {}, None),
    "single": ("quick", {}, None),
    "flaky": ("flaky", {"retry": AT_ONCE}, None),
    "doomed": ("doomed", {}, None),
    "mourner": ("quick", {}, After(task="doomed", on=AfterOn.FAILURE)),
    "first": ("short", {}, None),
    "second": ("quick", {}, After(task="first")),
    "laned": ("short", {"lane": "one"}, None),
    "capped": ("short", {"group": GROUP}, None),
    "teller": ("teller", {}, None),
    "asker": ("asker", {}, None),
    "patient": ("patient", {}, None),
    "threaded": ("threaded", {}, None),
    "spoken": ("spoken", {"on_lost": "retry"}, None),
    "stuck": ("stuck", {"timeout": "100ms"}, None),
    "apart": ("apart", {"isolate": True}, None),
}
"""Each task's work, its policy and what it follows."""

SCHEDULES: Final = {"tick": timedelta(milliseconds=150), "tock": timedelta(milliseconds=400)}
QUEUED: Final = (
    *("single", "flaky", "doomed", "first", "laned", "laned", "laned"),
    *("capped", "capped", "capped", "capped", "teller", "teller", "asker", "threaded"),
)
FILES: Final = tuple(
    NewFile(MessageFile(name, "text/plain", len(name), "0" * 64), name.encode())
    for name in ("one.txt", "two.txt")
)
"""What every message carries; nobody reads it."""


async def call(address: str, number: int, extras: tuple[str, ...], *, last: bool) -> None:
    """Do everything of one life; the last one also closes what is open."""
    async with asyncio.timeout(GIVE_UP_SECONDS):
        rota = await _patiently(lambda: _opened(address))
        try:
            await _Calls(rota, number).make(extras, last=last)
        finally:
            await rota.close()


async def _opened(address: str) -> Rota:
    rota = Rota(address)
    try:
        await rota.open()
    except BaseException:
        await rota.store.database.close()
        raise
    return rota


async def _patiently(ask: Callable[[], Awaitable[Answer]], *more: type[RotaError]) -> Answer:
    """Ask until the database answers."""
    while True:
        try:
            return await ask()
        except RotaError as fault:
            if not isinstance(fault, (Unavailable, *more)):
                raise
            await asyncio.sleep(PAUSE_SECONDS)


class _Calls:
    """What one caller asks for, in order."""

    def __init__(self, rota: Rota, number: int) -> None:
        self._rota = rota
        self._store = rota.store
        self._number = number
        self._count = 0

    async def make(self, extras: tuple[str, ...], *, last: bool) -> None:
        """Ask for everything."""
        await self._define()
        if last and self._number > 0:
            await self._enqueue("single")
        else:
            await self._ask_for_all(extras)
        if last:
            await self._finish()

    async def _ask_for_all(self, extras: tuple[str, ...]) -> None:
        for name in (*QUEUED, *extras):
            await self._enqueue(name)
        await self._enqueue("single", delay=timedelta(milliseconds=100))
        await self._cancel("single", delay=FAR)
        await self._cancel("patient")
        await self._speak()
        await self._come_and_go()
        await self._plan_beside()
        mine = _queued("asker", f"{self._number}.")
        for run_id in mine:
            await self._until_past(run_id, RunState.QUEUED, RunState.RUNNING)
        await self._answer(mine)

    async def _define(self) -> None:
        await _patiently(partial(spaces.set_space, self._store, LOCAL, "main", "UTC"))
        limit = Limit(scope=LimitScope.GROUP, key=GROUP, cap=GROUP_CAP)
        await _patiently(partial(self._store.write, set_limits, [limit]))
        again = self._number > 0
        for name, (work, options, after) in islice(TASKS.items(), 3 if again else None):
            await self._put(name, work, options, after)
        if again:
            return
        for name, every in SCHEDULES.items():
            wish = ScheduleSpec(every=every, shortest=every)
            put = partial(schedules.put_schedule, self._store, LOCAL, name, wish)
            made = await _patiently(put)
            note("scheduled", sure=True, task=name, schedule=made.id)

    async def _put(
        self, name: str, work: str, options: dict[str, Any], after: After | None = None
    ) -> None:
        await _patiently(
            partial(
                tasks.put_task,
                self._store,
                LOCAL,
                name,
                route="python",
                spec={"call": f"{WORK}:{work}"},
                policy=policy_from(options, Policy(metered=False)),
                after=after,
                replace=True,
            )
        )
        note("defined", sure=True, task=name)

    async def _enqueue(self, task: str, delay: timedelta | None = None) -> RunId:
        self._count += 1
        key = f"{self._number}.{self._count}"
        ask = partial(self._rota.enqueue, task, {"of": key}, key=key, delay=delay)
        run_id = await _patiently(ask, NotFound)  # an earlier caller may have yet to define it
        note("queued", sure=True, task=task, key=key, run=run_id)
        return run_id

    async def _cancel(self, task: str, delay: timedelta | None = None) -> None:
        """Cancel a run, if possible while it runs."""
        run_id = await self._enqueue(task, delay)
        if delay is None:
            await self._until_past(run_id, RunState.QUEUED)
        try:
            run = await _patiently(partial(self._rota.cancel, run_id))
        except IllegalMove:  # it was over before
            return
        note("cancelled", sure=True, run=run_id, state=run.state.value)

    async def _speak(self) -> None:
        """Say something for a run that goes on."""
        run_id = await self._enqueue("spoken")
        await self._until_past(run_id, RunState.QUEUED)
        await speak(self._store, run_id, _patiently)

    async def _until_past(self, run_id: RunId, *states: RunState) -> None:
        """Wait until a run has come beyond some states, for a while."""
        for _ in range(LOOKS):
            run = await _patiently(partial(self._rota.run, run_id))
            if run.state not in states:
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _come_and_go(self) -> None:
        """Define a task with a schedule and a run, disable and enable it, and take all away."""
        name = f"passing{self._number}"
        await self._put(name, "quick", {})
        await self._remember(name)
        wish = ScheduleSpec(cron="0 0 1 1 *")
        await _patiently(partial(schedules.put_schedule, self._store, LOCAL, name, wish))
        await self._enqueue(name, FAR)
        await _patiently(partial(tasks.disable_task, self._store, LOCAL, name))
        await _patiently(partial(tasks.enable_task, self._store, LOCAL, name))
        await _patiently(partial(spaces.pause_all, self._store, LOCAL))
        await _patiently(partial(spaces.resume_all, self._store, LOCAL))
        await self._drop_schedule(name)
        with suppress(NotFound):  # it is gone, and the answer was lost
            await _patiently(partial(tasks.delete_task, self._store, LOCAL, name))
        note("deleted", sure=True, task=name)

    async def _plan_beside(self) -> None:
        """Plan a slot before the daemon does, or at the same time, as changes of what is due do."""
        for _ in range(LOOKS_FOR_DUE):
            due = await _patiently(partial(self._store.read, list_due_schedules, 1))
            if due:
                plans = [plan_schedule(one, self._store.now()) for one in due]
                await _patiently(partial(self._store.write, apply_plans, plans))
                return

    async def _remember(self, name: str) -> None:
        """Keep a value and an item for a task, and a key for whoever comes."""
        value = f"value {self._number}"
        for word in ("kept", "passing"):
            await _patiently(partial(task_state.put_state, self._store, LOCAL, name, word, value))
        with suppress(NotFound):  # it is gone, and the answer was lost
            await _patiently(partial(task_state.drop_state, self._store, LOCAL, name, "passing"))
        items = [("mail", f"item {self._number}", None)]
        await _patiently(partial(task_state.mark_seen, self._store, LOCAL, name, items))
        note("remembered", sure=True, task=name, value=value, item=items[0][1])
        secret = f"secret {self._number}".encode().ljust(SECRET_BYTES)
        key = await self._key(name, secret)
        await _patiently(partial(self._store.write, touch_keys, {key.id: self._store.now()}))
        await _patiently(partial(keys.revoke_key, self._store, LOCAL, key.id))
        note("revoked", sure=True, key=key.id)
        await self._ask_once(name, value)
        leap = Leap(10 * self._number, 10 * self._number + 1)
        await _patiently(partial(self._store.write, record_clock_jump, leap))
        await _patiently(partial(self._store.write, record_clock_return, leap))
        await self._keep()
        await self._converse(name)

    async def _keep(self) -> None:
        """Come to every transaction of a kept attempt, of a run that is nobody's."""
        store, run_id, home = self._store, RunId(NOBODYS), "nowhere"
        kept = KeptAttempt(
            run_id=run_id, epoch=Epoch(1), home=home, nonce="", boot="", executor="process"
        )
        await _patiently(partial(store.write, renew_home_lease, home, "here", store.now()))
        await _patiently(partial(store.write, fence_home, home, "caller"))
        await _patiently(partial(store.write, record_launch, kept, "caller"))
        why = NewEvent(EventName.AGENT_ERROR, {})
        await _patiently(partial(store.write, schedule_relaunch, Relaunch(kept, why), "caller"))
        await _patiently(partial(store.write, record_output, run_id, kept.epoch, "caller", ()))
        await _patiently(partial(store.write, adopt_attempt, run_id, kept.epoch, "caller"))
        await _patiently(partial(store.write, record_check_start, run_id, kept.epoch))
        await _patiently(partial(store.write, drop_kept_attempt, run_id, kept.epoch))
        sign = AttemptSample(run_id=run_id, epoch=kept.epoch)
        await _patiently(partial(store.write, record_heartbeats, "caller", [sign], store.now()))
        await _patiently(
            partial(store.write, record_machine_sample, "caller", home, "here", MachineLoad())
        )
        overdue = MissedHeartbeat(run_id, kept.epoch, store.now(), trusted=False, kept=False)
        await _patiently(partial(store.write, record_missed_heartbeats, {overdue: "nobody's"}))
        await _patiently(
            partial(
                store.write, set_budget, BudgetScope.TASK, run_id, BudgetCaps(tokens=1), "caller"
            )
        )
        place = (run_id, "log", "caller")
        await _patiently(partial(store.write, set_notification_target, *place, 0, usual=True))
        await _patiently(partial(store.write, drop_notification_target, *place))
        spender = BudgetHolder(
            run_id=run_id, epoch=1, space_id=run_id, task_id=run_id, day="2026-01-01", started_at=0
        )
        await _patiently(
            partial(store.write, reserve_budget, spender, "caller", Amounts(), Amounts(tokens=1))
        )

    async def _converse(self, name: str) -> None:
        """Say something to a run that never begins, and come to what is done about sessions."""
        store, nobody = self._store, RunId(NOBODYS)
        task = await _patiently(partial(get_task, store, LOCAL, name))
        thread = f"crash:{self._number}"
        template = make_template(
            task, RunSource.ENQUEUE, store.now(), from_micros(store.now()) + FAR
        )
        reader = RunBatch(template._replace(thread=thread, lane=thread), ["null"])
        text = f"message {self._number}"
        message = NewMessage(task.space_id, thread, "caller", text, files=FILES)
        named = NewThread(task.space_id, thread, {"title": thread, "task_id": task.id})
        await _patiently(partial(store.write, put_thread, named))
        said = await _patiently(partial(store.write, add_message, message, reader))
        note("said", sure=True, message=said.id, thread=thread)
        await _patiently(partial(store.write, requeue_reader, nobody, reader))
        await _patiently(partial(store.write, assign_messages, nobody, 1, "caller"))
        await _patiently(partial(store.write, record_mailbox_number, said.id, thread, 1))
        await _patiently(partial(store.write, acknowledge_messages, nobody, 1, said.id))
        await _patiently(partial(store.write, archive_session, NOBODYS, None))
        await _patiently(partial(store.write, resume_session, NOBODYS, None))
        await _patiently(partial(store.write, clear_session, NOBODYS))

    async def _key(self, name: str, secret: bytes) -> Key:
        found = await _patiently(partial(self._store.read, find_key, secret_digest(secret)))
        if found is not None:
            return found
        make = partial(keys.create_key, self._store, LOCAL, name, secret, scopes=EVERY_SCOPE)
        return (await _patiently(make))[0]

    async def _ask_once(self, name: str, value: str) -> None:
        """Make a change under a key of its own, however often it takes."""
        task = await _patiently(partial(get_task, self._store, LOCAL, name))
        word = f"once {self._number}"
        request = NewAuditEntry(caller="caller", space="main", command="put", key=word, digest=word)
        with suppress(Conflict):  # it was done, and the answer was lost
            audited = HookedStore(self._store, RequestAudit(self._store, request))
            await _patiently(partial(audited.write, put_state, task.id, "once", f'"{value}"', word))
        alone = NewAuditEntry(caller="caller", space="main", command="note")
        audited = HookedStore(self._store, RequestAudit(self._store, alone))
        await _patiently(partial(audited.write, record_request))
        found = await _patiently(partial(self._store.read, find_audit_entry, "caller", word))
        if found is not None:
            await _patiently(partial(self._store.write, record_answer, found.id, 200, value))
        note("asked", sure=True, key=word, answer=value)

    async def _drop_schedule(self, name: str) -> None:
        with suppress(NotFound):  # it is gone, and the answer was lost
            await _patiently(partial(schedules.drop_schedule, self._store, LOCAL, name))

    async def _answer(self, asking: Sequence[RunId]) -> bool:
        """Answer the open questions of runs; true if none of them asks any more."""
        over = True
        for run_id in asking:
            run = await _patiently(partial(self._rota.run, run_id))
            over = over and run.state in FINISHED
            if run.state is RunState.WAITING:
                questions = await _patiently(partial(self._rota.questions, run_id))
                with suppress(IllegalMove):  # the answer had been taken, and this one is late
                    await approve(self._store, questions[-1], _patiently)
                    note("answered", sure=True, run=run_id, question=questions[-1].id)
        return over

    async def _finish(self) -> None:
        """Wait until everything asked is answered and every slot so far is planned, then stop."""
        while not await self._answer(_queued("asker")):
            await asyncio.sleep(PAUSE_SECONDS)
        now = self._store.now()
        for name in SCHEDULES:
            await self._until_planned(name, now)
            await self._drop_schedule(name)
            note("unscheduled", sure=True, task=name, planned=now)

    async def _until_planned(self, name: str, instant: int) -> None:
        task = await _patiently(partial(get_task, self._store, LOCAL, name))
        planned = False
        while not planned:
            await asyncio.sleep(PAUSE_SECONDS)
            found = await _patiently(partial(self._store.read, list_schedules, [task.id]))
            planned = all(s.next_at is None or to_micros(s.next_at) > instant for s in found)


def _queued(task: str, key: str = "") -> list[RunId]:
    """Return the runs of a task that callers have queued, or the one whose keys begin so."""
    lines = [r for r in noted(Path.cwd()) if r["what"] == "queued" and r["task"] == task]
    return [RunId(r["run"]) for r in lines if r["key"].startswith(key)]
