"""What an earlier attempt of the same run has made already: it is not made again.

A run that is tried again begins anew and asks for the same things. The n-th time that an attempt
asks for something is the n-th time that the run does: if an earlier attempt has been given it, that
answer is given again, and written down for this attempt, too, so that the next one counts from
there. An attempt that goes on after an answer repeats nothing, and is not held to what came before.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel

from rota.doors.kit.catalogue import Command
from rota.doors.kit.office import Office
from rota.errors import InDoubt
from rota.model.ids import Epoch
from rota.model.inside import Held
from rota.model.requests import Request
from rota.model.runs import Cause
from rota.ports.store import Store

MAKING = frozenset({"create_task", "run_task"})
"""The commands that make something new each time they are asked for."""
IN_DOUBT = (
    "an earlier attempt of this run has asked for the same, and what came of it is not known: look "
    "before you ask again"
)


async def find_earlier(store: Store, held: Held, digest: str) -> Request | None:
    """Return the request of an earlier attempt that this one repeats, if it does."""
    if held.epoch <= 1:
        return None
    run = await store.get_run(held.run_id)
    if run is None or run.cause is Cause.RESUME:
        return None
    callers = [replace(held, epoch=Epoch(one)).name for one in range(1, held.epoch + 1)]
    asked: dict[str, list[Request]] = {}
    for request in await store.requests_alike(callers, digest):
        asked.setdefault(request.caller, []).append(request)
    own = len(asked.pop(held.name, ()))
    longest = max(asked.values(), key=len, default=[])
    return longest[own] if own < len(longest) else None


def repeating(command: Command, earlier: Request) -> Command:
    """Return a command that does nothing but give an earlier answer, and write that down."""

    async def again(office: Office, _asked: BaseModel) -> BaseModel:
        if earlier.answer is None:
            raise InDoubt(IN_DOUBT)
        await office.store.note_request()
        return command.gives.model_validate_json(earlier.answer)

    return replace(command, does=again)
