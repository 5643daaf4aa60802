"""Answering: a decision, and what Rota does itself because of it, in one transaction.

Whoever dies between any two statements leaves both undone, and the question open. What came of it
is written down with the answer, so it is told for ever after and never done again.
"""

from __future__ import annotations

import json

from rota.errors import Conflict, IllegalMove, NotFound, OverLimit, RotaError, Stale
from rota.faultpoints import reach
from rota.model.deeds import Deed
from rota.model.settlements import Settlement
from rota.model.states import FINISHED, RunState
from rota.stores.kit.dialect import Dialect
from rota.stores.kit.quotas import enqueue_within
from rota.stores.kit.session import Session, one
from rota.stores.kit.settle import settle
from rota.stores.kit.stopping import UNTOLD, request_cancel


class Answering(Dialect):
    """The operation of a person who approves what Rota does itself."""

    async def approve(self, answer: Settlement, deed: Deed) -> str | None:
        """Settle an answer and do what it approves; return what came of it, None if too late."""
        return await self.write(approve, answer, deed, self.now())


async def approve(session: Session, answer: Settlement, deed: Deed, now: int) -> str | None:
    """Settle the answer if the question is open still, do the deed, and write down what came."""
    ids = {answer.run_id} if deed.ends is None else {answer.run_id, deed.ends.run_id}
    await session.rows("lock_runs", ids=sorted(ids))  # in one order, whoever ends whom
    if not all(await settle(session, [answer], now)):
        return None
    came = await _do(session, deed, now)
    reach("approve.done")
    noted = await session.rows("note_outcome", id=answer.extras.answered, outcome=came)
    if not noted:
        message = f"the question of run {answer.run_id} was closed meanwhile: look at it again"
        raise Stale(message)
    return came


async def _do(session: Session, deed: Deed, now: int) -> str:
    if deed.queues is not None:
        try:
            ((queued,),) = await enqueue_within(session, [deed.queues], now)
        except OverLimit as fault:
            return json.dumps(_refused(fault))
        if queued.conflict:
            message = f"its key belongs to run {queued.run_id}, which has another payload"
            return json.dumps(_refused(Conflict(message)))
        return json.dumps({"ok": True, "run": queued.run_id, "created": queued.created})
    if deed.ends is not None:
        return json.dumps(await _cancel(session, deed.ends, now))
    return deed.known or json.dumps({"ok": True})


async def _cancel(session: Session, end: Settlement, now: int) -> dict[str, object]:
    """End a run as it stands now, or ask whoever works on it to stop."""
    row = await one(session, "lock_runs", ids=[end.run_id])
    if row is None:
        return _refused(NotFound("run", end.run_id, "it ended long ago"))
    state = RunState(row[2])
    if state in FINISHED:
        return _refused(IllegalMove(state, "be cancelled: it has ended already"))
    if state is RunState.RUNNING:
        await request_cancel(session, [end.run_id], end.extras.error or UNTOLD, now)
    else:
        await settle(session, [end._replace(epoch=row[1], was=state)], now)
        state = end.state
    return {"ok": True, "run": end.run_id, "state": state.value}


def _refused(fault: RotaError) -> dict[str, object]:
    return {"ok": False, "error": {"code": fault.code, "message": str(fault)}}
