"""Attempts that ask for things while they run, and what the checker expects of that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NoReturn

from rota.model.attempt_requests import TALKING, AttemptRef, DeferredKind, DeferredOperation
from rota.model.attempts import WaitingForAnswer
from rota.model.json import to_json
from rota.model.runs import Run
from rota.model.settlement import NewDelivery
from rota.rules.effects import effect_key, effect_slot
from rota.store.attempt_requests import defer_operations, record_effect
from rota.store.store import Store
from rota.store.tasks import find_space
from tests.tools.simulation.coverage import Sometimes
from tests.tools.simulation.database import Change, Row
from tests.tools.simulation.history import Violation
from tests.tools.simulation.picture import FINISHED, Commit, Picture

SEEN, LATER, NOW = "seen", "later", "now"
QUESTION = WaitingForAnswer(question="Go on?", options=("yes", "no"))


async def speak(store: Store, run: Run, *, asks: bool) -> None:
    """Defer an item and a message for an attempt, send another at once, and perhaps ask."""
    space = await store.read(find_space, run.space)
    slot = effect_slot(run)
    speaker = AttemptRef(
        run_id=run.id, epoch=run.epoch, task_id=run.task_id, space_id=space.id, slot=slot
    )

    def message(name: str) -> NewDelivery:
        key = effect_key(space.id, run.task_id, slot, name)
        return NewDelivery(
            space_id=space.id, channel="test", target="t0", body=name, dedupe_key=key
        )

    item = {"items": [["", f"{run.id}.{run.epoch}", "null"]]}
    sent = {"slot": slot, "to": "test:t0", "delivery": to_json(message(LATER))}
    operations = [
        DeferredOperation(kind=DeferredKind.SEEN, data=json.dumps(item), name=SEEN),
        DeferredOperation(kind=DeferredKind.MESSAGE, data=json.dumps(sent), name=LATER),
    ]
    if asks and run.route in TALKING:
        data = json.dumps(to_json(QUESTION))
        operations.append(DeferredOperation(kind=DeferredKind.QUESTION, data=data, name="question"))
    await store.write(defer_operations, speaker, operations)
    await store.write(record_effect, speaker, NOW, "{}", message(NOW))


class TalkJudge:
    """Knows what is deferred, and raises a Violation if it is done otherwise than promised."""

    def __init__(self, sometimes: Sometimes, picture: Picture) -> None:
        self._sometimes = sometimes
        self._picture = picture
        self._rows: dict[tuple[int, int, int], Row] = {}

    def committed(self, changes: Mapping[str, Sequence[Change]], commit: Commit) -> None:
        """Judge what a transaction did to deferred operations, and to what they are about."""
        gone: list[Row] = []
        for change in changes.get("deferred_operations", ()):
            if change.new is not None:
                self._deferred(change.new)
            else:
                gone.append(self._rows.pop((change.old.run_id, change.old.epoch, change.old.seq)))
        moved = {c.new.id: c for c in changes.get("runs", ()) if c.old and c.new}
        done = {c.new.item: c for c in changes.get("seen_items", ()) if c.new is not None}
        for row in gone:
            run = moved.get(row.run_id)
            if run is None:
                _broken("what is deferred goes with its run's move", f"{row} by {commit.operation}")
            self._gone(row, run, done)
        if done:
            _broken("only a success does what was deferred", f"{sorted(done)}")
        if moved and self._rows:
            self._left(moved)

    def _deferred(self, row: Row) -> None:
        run = self._picture.runs.get(row.run_id)
        if run is None or (run.state, run.epoch) != ("running", row.epoch):
            _broken("only who has a run defers for it", f"run {row.run_id} e{row.epoch}: {run}")
        self._rows[row.run_id, row.epoch, row.seq] = row

    def _gone(self, row: Row, run: Change, done: dict[str, Change]) -> None:
        if row.kind == DeferredKind.QUESTION and run.new.state == "waiting":
            self._sometimes.hit("an attempt that has asked waits")
        elif run.new.state != "succeeded":
            self._sometimes.hit("what was deferred is dropped")
        elif row.kind == DeferredKind.SEEN:
            ((_, item, _),) = json.loads(row.data)["items"]
            change = done.pop(item, None)
            if change is None or change.old is not None or change.new.count != 1:
                _broken("what was deferred is done once", f"item {item}: {change}")
            self._sometimes.hit("what was deferred is done")

    def _left(self, moved: dict[int, Change]) -> None:
        for row in self._rows.values():
            run = moved.get(row.run_id)
            if run is None or run.old.state == run.new.state:
                continue
            again = (run.old.state, run.new.state) == ("running", "queued")
            if run.new.state in FINISHED or (again and row.epoch == run.new.epoch):
                _broken("an attempt's end leaves nothing deferred", f"run {row.run_id}: {row}")


def _broken(rule: str, detail: str) -> NoReturn:
    raise Violation(rule, detail)
