"""The judge: after every commit it compares what changed with what was promised.

It keeps a picture of its own, built from the rows that transactions write and from nothing else,
and never asks the engine or its SQL for an opinion.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NoReturn

from tests.tools.simulation.attempt_requests import TalkJudge
from tests.tools.simulation.coverage import Sometimes, walked
from tests.tools.simulation.database import Change, Row
from tests.tools.simulation.history import Violation
from tests.tools.simulation.kept_attempts import KeptJudge
from tests.tools.simulation.limits import Limits
from tests.tools.simulation.picture import FINISHED, Commit, Picture, process_of
from tests.tools.simulation.plans import check_planning

MOVES = {
    "queued": {"running", "failed", "cancelled", "expired"},
    "running": {"queued", "waiting", "succeeded", "failed", "cancelled", "expired"},
    "waiting": {"queued", "failed", "cancelled", "expired"},
}
"""Where a run may go from where; a second opinion beside `rota.model.runs`."""

DELIVERY_MOVES = {
    "pending": {"sending", "withdrawn"},
    "sending": {"pending", "sent", "unknown", "dead"},
}
NEVER_CHANGES = (
    *("id", "space_id", "task_id", "payload", "key", "created_at", "source"),
    *("schedule_id", "slot_key", "slot_at", "upstream_id", "depth"),
)
MAX_LOSSES = 3
PRUNE = "prune_runs"
UNREPORTED = object()
"""What an attempt has to show for itself before it has said how it went."""
PAUSES = {"store.paused": True, "store.resumed": False}


class Checker:
    """Raises a Violation for the first promise a commit breaks."""

    def __init__(self, sometimes: Sometimes, *, clocks_agree: bool) -> None:
        self.picture = Picture()
        self.reports: dict[tuple[int, int], object] = {}
        self.taken: Counter[str] = Counter()
        self._sometimes = sometimes
        self._limits = Limits(sometimes, clocks_agree=clocks_agree)
        self.clocks_agree = clocks_agree
        self._most_attempts: dict[int, int] = {}
        self._tried_again: Counter[int] = Counter()
        self._renewed_until: dict[str, int] = {}
        self._to_deliver: set[int] = set()
        self._settled: Counter[int] = Counter()
        self._workers_ever: set[str] = set()
        self.kept = KeptJudge(sometimes, self.picture, self.reports)
        self._talk = TalkJudge(sometimes, self.picture)
        self._paused = False
        self._rules: dict[str, Callable[[Change, Commit, _Batch], None]] = {
            "runs": self._run,
            "attempts": self._attempt,
            "deliveries": self._delivery,
            "questions": self._question,
            "workers": self._worker,
            "tasks": self._task,
        }

    def read(self, changes: Sequence[Change], commit: Commit) -> None:
        """A read never writes."""
        if changes:
            _broken("a read writes nothing", f"{commit.operation} changed {changes[0].table}")

    def committed(self, changes: Sequence[Change], commit: Commit) -> None:
        """Judge one transaction, then take its rows into the picture."""
        if commit.operation == "renew_worker":
            worker, until = commit.args[:2]
            if worker in self.picture.workers and not self.picture.workers[worker].fenced:
                self._renewed_until[worker] = until
        batch = _Batch(changes)
        for change in changes:
            rule = self._rules.get(change.table)
            if rule is not None:
                rule(change, commit, batch)
        if commit.operation == "adopt_attempt":
            self._adopted(commit, batch)
        self._events(batch)
        self._pauses(batch)
        check_planning(self.picture, batch.by_table, commit)
        self._limits.judge(batch.by_table, commit.now)
        self.kept.committed(batch.by_table, commit)
        self._talk.committed(batch.by_table, commit)
        self._keep(changes, commit)
        for path in walked(batch.by_table, commit):
            self._sometimes.hit(path)

    def _pauses(self, batch: _Batch) -> None:
        for change in batch.by_table.get("events", ()):
            if change.new is not None and change.new.name in PAUSES:
                self._paused = PAUSES[change.new.name]

    def began(self, run_id: int, epoch: int) -> None:
        """An attempt began to work."""
        if (run_id, epoch) in self.reports:
            _broken("an attempt begins once", f"run {run_id} epoch {epoch} began twice")
        self.reports[run_id, epoch] = UNREPORTED
        run = self.picture.runs.get(run_id)
        if run is None or (run.state, run.epoch) != ("running", epoch):
            self._sometimes.hit("an attempt begins after its run was taken away")

    # runs

    def _run(self, change: Change, commit: Commit, batch: _Batch) -> None:
        old, new = change.old, change.new
        if old is None:
            self._run_added(new, batch)
        elif new is None:
            self._run_deleted(old, commit)
        else:
            self._run_moved(old, new, commit, batch)

    def _run_added(self, new: Row, batch: _Batch) -> None:
        if (new.state, new.epoch, new.finished_at) != ("queued", 0, None):
            _broken("a run begins queued", f"run {new.id} begins {new.state} at epoch {new.epoch}")
        if new.slot_key is not None and (new.schedule_id, new.slot_key) in self.picture.slots:
            other = self.picture.slots[new.schedule_id, new.slot_key]
            _broken("a slot has at most one run", f"{new.slot_key}: runs {other} and {new.id}")
        if new.key is not None and (new.task_id, new.key) in self.picture.keys:
            other = self.picture.keys[new.task_id, new.key]
            _broken("a key makes one run", f"key {new.key}: runs {other} and {new.id}")
        if new.source == "after":
            upstream = batch.of("runs", new.upstream_id)
            if upstream is None or upstream.new.state not in FINISHED - {"cancelled"}:
                _broken("a successor comes with its upstream's end", f"run {new.id}")
            if upstream.old.state in FINISHED:
                _broken("a successor comes with its upstream's end", f"run {new.id}")

    def _run_deleted(self, old: Row, commit: Commit) -> None:
        before = commit.args[0] if commit.operation == PRUNE else 0
        if old.state not in FINISHED or old.finished_at >= before:
            _broken("only old, finished runs leave", f"run {old.id} was {old.state}")

    def _run_moved(self, old: Row, new: Row, commit: Commit, batch: _Batch) -> None:
        _legal(old, new)
        claimed = old.state == "queued" and new.state == "running"
        if new.epoch != old.epoch + claimed:
            _broken("epochs rise by one a claim", f"run {new.id}: {old.epoch} to {new.epoch}")
        ended = old.state == "running" and new.state != "running"
        if ended != (batch.of("attempts", new.id, new.epoch) is not None):
            _broken("an attempt's end leaves one row", f"run {new.id} epoch {new.epoch}")
        self._within_policy(old, new)
        if claimed:
            self._claimed(old, new, commit)
        if ended:
            self._ended(old, new, commit, batch)
        if self.clocks_agree and new.state == "expired" and new.expires_at > commit.at:
            _broken("nothing expires early", f"run {new.id}")
        if new.state == "waiting" and old.state != "waiting":
            asked = [c.new for c in batch.by_table.get("questions", ()) if c.old is None]
            if (new.id, new.epoch) not in {(q.run_id, q.epoch) for q in asked}:
                _broken("a waiting run has a question", f"run {new.id}")

    def _within_policy(self, old: Row, new: Row) -> None:
        if new.retries > old.retries:
            most = self._most_attempts.get(new.task_id, 1) - 1
            if new.retries != old.retries + 1 or new.retries > most:
                _broken("attempts stay within the policy", f"run {new.id}: {new.retries} retries")
        if new.losses > MAX_LOSSES:
            _broken("losses are bounded", f"run {new.id} was lost {new.losses} times")

    def _claimed(self, old: Row, new: Row, commit: Commit) -> None:
        worker = self.picture.workers.get(new.worker_id)
        if process_of(new.worker_id) != commit.process:
            _broken("a lease belongs to who claimed it", f"run {new.id} held by {new.worker_id}")
        if (worker is None and self.clocks_agree) or (worker is not None and worker.fenced):
            _broken("a fenced worker gets nothing", f"run {new.id} went to {new.worker_id}")
        if self._paused:
            _broken("nothing begins while everything is paused", f"run {new.id}")
        if old.queue_state == "delayed":
            _broken("only ready runs are claimed", f"run {new.id} was {old.queue_state}")
        if self.clocks_agree and new.available_at > commit.at:
            _broken("nothing starts early", f"run {new.id}")
        if new.cause == "retry":
            self._tried_again[new.id] += 1
            if self._tried_again[new.id] >= self._most_attempts.get(new.task_id, 1):
                _broken("attempts stay within the policy", f"run {new.id} is tried too often")
        self._note_delivery(new)

    def _adopted(self, commit: Commit, batch: _Batch) -> None:
        """Note how the task stands of a run that was adopted, maybe by who held it before."""
        run_id, epoch, worker = commit.args[:3]
        change = batch.of("runs", run_id)
        run = self.picture.runs.get(run_id) if change is None else change.new
        if run is not None and (run.state, run.epoch, run.worker_id) == ("running", epoch, worker):
            self._note_delivery(run)

    def _note_delivery(self, run: Row) -> None:
        """An attempt is judged by its task as it stood when it was claimed, or adopted."""
        if json.loads(self.picture.tasks[run.task_id].policy).get("deliver_to"):
            self._to_deliver.add(run.id)
        else:
            self._to_deliver.discard(run.id)

    def _ended(self, old: Row, new: Row, commit: Commit, batch: _Batch) -> None:
        worker = self.picture.workers.get(old.worker_id)
        if process_of(old.worker_id) != commit.process and worker is not None and not worker.fenced:
            detail = f"run {new.id} of {old.worker_id} was ended by {commit.process}"
            _broken("only its holder ends a running run", detail)
        outcome = batch.outcome(new.id, new.epoch)
        if old.cancel_requested_at is not None and new.state == "queued":
            _broken("a cancelled run is not tried again", f"run {new.id} was {outcome}")
        lost = "lost" in {new.error_code, outcome}
        said = process_of(old.worker_id) == commit.process and not lost
        ended = said and outcome == new.state and new.state in {"succeeded", "failed"}
        ended = ended or (said and new.state == "waiting")
        if ended and new.id in self._to_deliver and not batch.sends(new.id):
            _broken("a message leaves with its run's end", f"run {new.id} sent none")
        if new.state == "succeeded":
            report = self.reports.get((new.id, new.epoch))
            if new.result != report:
                _broken("a result is its attempt's", f"run {new.id}: {new.result}, not {report}")

    # what goes with runs

    def _attempt(self, change: Change, commit: Commit, batch: _Batch) -> None:
        old, new = change.old, change.new
        if old is not None and (new is not None or commit.operation != PRUNE):
            _broken("an attempt's row is written once", f"run {old.run_id} epoch {old.epoch}")
        if new is not None:
            run = batch.of("runs", new.run_id)
            if run is None or run.old is None or run.old.state != "running":
                _broken("an attempt's end leaves one row", f"run {new.run_id} was not running")

    def _delivery(self, change: Change, commit: Commit, batch: _Batch) -> None:
        old, new = change.old, change.new
        if old is None:
            run = batch.of("runs", new.run_id)
            ended = run is not None and run.old is not None and run.new.state in FINISHED
            goes_on = self.picture.runs[new.run_id].state == "running"
            asks = (
                run is not None
                and run.new.state == "waiting"
                and new.question_epoch == run.new.epoch
            )
            if not (
                goes_on if new.during_run else asks if new.question_epoch is not None else ended
            ):
                _broken("a message leaves with its run's end", f"delivery {new.id}")
        elif new is None:
            if old.state in DELIVERY_MOVES or commit.operation != PRUNE:
                _broken("only old, finished deliveries leave", f"delivery {old.id}")
            run = batch.of("runs", old.run_id)
            if old.run_id in self.picture.runs and (run is None or run.new is not None):
                _broken("a message stays as long as its run", f"delivery {old.id}")
        elif old.state != new.state:
            if new.state not in DELIVERY_MOVES.get(old.state, ()):
                _broken("moves are legal", f"delivery {new.id}: {old.state} to {new.state}")
            if new.tries != old.tries + (new.state == "sending"):
                _broken("tries are counted", f"delivery {new.id}: {old.tries} to {new.tries}")
            if new.state == "sent" and not self.taken[new.dedupe_key]:
                _broken("sent means taken", f"delivery {new.id}")

    def _question(self, change: Change, commit: Commit, batch: _Batch) -> None:
        old, new = change.old, change.new
        if old is None or new is None:
            return
        if old.answered_at is not None:
            _broken("a question is answered once", f"question {new.id}")
        run = batch.of("runs", new.run_id)
        if run is None or run.old.state != "waiting" or run.new.state == "waiting":
            _broken("an answer moves its run", f"question {new.id} by {commit.process}")

    def _worker(self, change: Change, commit: Commit, batch: _Batch) -> None:
        old, new = change.old, change.new
        if old is None:
            if new.id in self._workers_ever:
                _broken("a worker's id is never used again", new.id)
            self._workers_ever.add(new.id)
        elif new is None:
            held = [r.id for r in self.picture.runs.values() if r.worker_id == old.id]
            still = [
                i for i in held if (c := batch.of("runs", i)) is None or c.new.worker_id == old.id
            ]
            if still:
                _broken("a worker leaves with empty hands", f"{old.id} held {still}")
        elif old.fenced > new.fenced:
            _broken("fenced is for ever", old.id)
        elif new.fenced > old.fenced and commit.operation == "fence_workers":
            self._fenced(old, commit)
        elif new.fenced > old.fenced and commit.operation == "fence_home":
            self.kept.fenced(old, commit)

    def _fenced(self, worker: Row, commit: Commit) -> None:
        if worker.lease_until >= commit.now:
            _broken("a lease holds until it ends", worker.id)
        if self.clocks_agree and self._renewed_until.get(worker.id, 0) >= commit.now:
            _broken("a renewing worker is not fenced", worker.id)

    def _task(self, change: Change, commit: Commit, batch: _Batch) -> None:
        new = change.new
        if new is not None:
            attempts = json.loads(new.policy).get("retry", {}).get("attempts", 1)
            most = self._most_attempts.get(new.id, 1)
            self._most_attempts[new.id] = max(most, attempts)

    def _events(self, batch: _Batch) -> None:
        settled = [
            c.new.run_id
            for c in batch.by_table.get("events", ())
            if c.old is None and c.new.name == "run.settled"
        ]
        ended = [
            c.new.id
            for c in batch.by_table.get("runs", ())
            if c.new is not None and c.new.state in FINISHED and c.old is not None
        ]
        if sorted(settled) != sorted(ended):
            _broken("an end is recorded once", f"events for {settled}, ends of {ended}")

    def _keep(self, changes: Sequence[Change], commit: Commit) -> None:
        picture = self.picture
        for table, old, new in changes:
            rows = getattr(picture, table, None)
            if rows is None:
                continue
            if new is None:
                rows.pop(old.id, None)
            else:
                rows[new.id] = new
            if table == "runs":
                self._keep_names(old, new)
                if new is not None and new.state in FINISHED:
                    picture.tasks_left[new.task_id] = commit.instant

    def _keep_names(self, old: Row | None, new: Row | None) -> None:
        picture = self.picture
        if old is None and new is not None:
            if new.slot_key is not None:
                picture.slots[new.schedule_id, new.slot_key] = new.id
            if new.key is not None:
                picture.keys[new.task_id, new.key] = new.id
        elif new is None and old is not None:
            picture.slots.pop((old.schedule_id, old.slot_key), None)
            picture.keys.pop((old.task_id, old.key), None)


class _Batch:
    """The changes of one transaction, by table and by row."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.by_table: dict[str, list[Change]] = {}
        self._rows: dict[tuple[object, ...], Change] = {}
        for change in changes:
            self.by_table.setdefault(change.table, []).append(change)
            row = change.new or change.old
            if change.table == "runs":
                self._rows["runs", row.id] = change
            elif change.table == "attempts":
                self._rows["attempts", row.run_id, row.epoch] = change

    def of(self, *key: object) -> Change | None:
        """Return what happened to one row, or None."""
        return self._rows.get(key)

    def sends(self, run_id: int) -> bool:
        """Return whether a run's end left a message in the outbox."""
        return any(c.new.run_id == run_id for c in self.by_table.get("deliveries", ()) if c.new)

    def outcome(self, run_id: int, epoch: int) -> str:
        """Return how an attempt that ended in this transaction ended."""
        return str(self._rows["attempts", run_id, epoch].new.outcome)


def _legal(old: Row, new: Row) -> None:
    for column in NEVER_CHANGES:
        if getattr(old, column) != getattr(new, column):
            _broken("a run's identity stays", f"run {new.id}: {column} changed")
    if old.state in FINISHED:
        _broken("terminal is final", f"run {new.id} was {old.state}, became {new.state}")
    if old.state != new.state and new.state not in MOVES[old.state]:
        _broken("moves are legal", f"run {new.id}: {old.state} to {new.state}")


def _broken(rule: str, detail: str) -> NoReturn:
    raise Violation(rule, detail)
