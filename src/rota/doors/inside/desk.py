"""The desk: where a program that works for a run asks for something, whichever way it came.

Who asks is told by the place the words were found in, never by the words. What is asked for is a
command of the catalogue, carried out as at every other door: permission, the record of requests,
and answers that stay the same when a request is repeated. An attempt that is over gets nothing.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Coroutine, Mapping
from typing import Any

from pydantic import ValidationError

from rota.doors.inside.earlier import MAKING, find_earlier, repeating
from rota.doors.inside.pace import Pace
from rota.doors.inside.verbs import Offered, offered
from rota.doors.kit.faults import fault_record
from rota.doors.kit.office import House, Office
from rota.doors.kit.perform import digest_of, is_key, perform, refused
from rota.errors import Fenced, Invalid, NotFound, RotaError
from rota.model.inside import Held
from rota.model.spaces import Role
from rota.model.values import is_deeper
from rota.rules.inside import inherited
from rota.rules.permission import Caller, attempt_caller

log = logging.getLogger(__name__)

LONGEST_REQUEST = 1 << 20
DEEPEST_REQUEST = 40
UNEXPECTED = {"code": "unexpected", "message": "something went wrong here; see the log"}


class Desk:
    """Serves whoever works inside, and whoever brings a key."""

    def __init__(self, house: House, pace: Pace | None = None) -> None:
        self._house = house
        self._pace = pace or Pace()
        self._roles: dict[str, Role] = {}

    async def serve(
        self, held: Held, verb: str, fields: Mapping[str, Any], request_id: str | None = None
    ) -> dict[str, Any]:
        """Do what an attempt asks for and return the answer; a refusal is one, too."""
        return await self._told(self._serve_attempt(held, verb, fields, request_id), verb)

    async def serve_caller(
        self, caller: Caller, verb: str, fields: Mapping[str, Any], request_id: str | None = None
    ) -> dict[str, Any]:
        """Do what a caller asks for, who is known by a key or is an attempt."""
        if caller.attempt is not None:
            return await self.serve(caller.attempt, verb, fields, request_id)
        return await self._told(self._serve(caller, verb, fields, request_id), verb)

    async def caller_of(self, run_id: int, epoch: int) -> Caller | None:
        """Return an attempt as a caller; None if it is over."""
        held = await self._house.store.find_held(run_id, epoch)
        return None if held is None else attempt_caller(held, await self._role(held.space))

    def offers(self, caller: Caller) -> Mapping[str, Offered]:
        """Return the verbs that a caller can ask for."""
        known = offered(attempt=caller.attempt is not None)
        return {name: one for name, one in known.items() if one.command.scope in caller.scopes}

    async def _serve_attempt(
        self, held: Held, verb: str, fields: Mapping[str, Any], request_id: str | None
    ) -> dict[str, Any]:
        self._pace.spend(held.name)
        caller = await self.caller_of(held.run_id, held.epoch)
        if caller is None:
            raise Fenced(held.run_id, held.epoch)
        return await self._serve(caller, verb, fields, request_id)

    async def _serve(
        self, caller: Caller, verb: str, fields: Mapping[str, Any], request_id: str | None
    ) -> dict[str, Any]:
        found = self.offers(caller).get(verb)
        if found is None:
            raise NotFound("verb", verb, f"there are {', '.join(self.offers(caller))}")
        if request_id is not None and not is_key(request_id):
            raise Invalid("request_id", request_id, "use 1 to 256 visible characters of ASCII")
        check_depth(fields)
        said = await self._filled(found, caller, fields)
        try:
            text = json.dumps(said, allow_nan=False)
            if len(text) > LONGEST_REQUEST:
                raise Invalid("request", "", f"it has at most {LONGEST_REQUEST} bytes")
            asked = found.command.takes.model_validate_json(text, strict=True)
        except ValidationError as fault:
            raise refused(fault) from None
        except (TypeError, ValueError):
            raise Invalid("request", "", "send values of JSON") from None
        office, command, key, told = self._office(caller), found.command, request_id, {}
        if caller.attempt is not None and command.name in MAKING:
            key = key or f"desk:{secrets.token_hex(16)}"
            earlier = await find_earlier(office.store, caller.attempt, digest_of(command, asked))
            if earlier is not None:
                command, told = repeating(command, earlier), {"already_done": True}
        answer = await perform(command, office, asked, key=key)
        return {**json.loads(answer.text), **told}

    async def _filled(
        self, found: Offered, caller: Caller, fields: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the fields, with what an attempt leaves out; its tasks are bounded as it is."""
        held = caller.attempt
        if held is None:
            return fields
        said = found.filled(fields, held)
        if found.verb.name == "schedule_task" and "call" not in said:
            (own,) = await self._house.store.get_tasks([held.task_id])
            said = inherited(own.spec, said)
        return said

    async def _told(
        self, serving: Coroutine[Any, Any, dict[str, Any]], verb: str
    ) -> dict[str, Any]:
        try:
            return {**await serving, "ok": True}
        except RotaError as fault:
            return {"ok": False, **fault_record(fault)}
        except Exception:
            log.exception("desk.unexpected", extra={"verb": verb[:100]})
            return {"ok": False, "error": dict(UNEXPECTED)}

    async def _role(self, space: str) -> Role:
        """Return whether a space acts for everybody; that never changes."""
        if space not in self._roles:
            self._roles[space] = (await self._house.store.find_space(space)).role
        return self._roles[space]

    def _office(self, caller: Caller) -> Office:
        house = self._house
        return Office(
            store=house.store,
            caller=caller,
            chance=house.chance,
            bounds=house.bounds,
            agents=house.agents,
            channels=house.channels,
            inquirer=house.inquirer,
            sites=house.sites,
            artifacts=house.artifacts,
            probes=house.probes,
            daemon=house.daemon,
        )


def check_depth(value: object) -> None:
    """Refuse a value that is nested too deep to be read with care."""
    if is_deeper(value, DEEPEST_REQUEST):
        raise Invalid("request", "", f"nest values {DEEPEST_REQUEST} deep at most")
