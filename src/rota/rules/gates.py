"""Gates: a program that decides, before the work begins, whether it needs to begin at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from rota.errors import Invalid
from rota.model.runs import LONGEST_PAYLOAD
from rota.model.tasks import TaskKind
from rota.rules.programs import check_program
from rota.timing.durations import parse_duration

GATE = "gate"
USUAL_SECONDS = 60.0
MOST_SECONDS = 600.0
LONGEST_STATE = 64 * 1024
LONGEST_REASON = 1_000
MOST_WORDS = 1_000
ADVICE = 'end with one line like {"wake": true}, or write it to ROTA_RESULT_FILE'


class Gate(NamedTuple):
    """The words of a gate, and how long it may take."""

    words: tuple[str, ...]
    seconds: float


class Said(NamedTuple):
    """What a gate said: whether to wake, why, what to find again, and what to hand on."""

    wake: bool
    reason: str | None = None
    state: str | None = None
    """JSON text; None leaves what stands."""
    input: object = None


def gate_in(spec: Mapping[str, Any]) -> Gate | None:
    """Return the gate of a record; Invalid if it is none."""
    told = spec.get(GATE)
    if told is None:
        return None
    if not isinstance(told, dict) or not told.keys() <= {"command", "timeout"}:
        raise Invalid(GATE, told, "give its command and, if it needs one, a timeout")
    words = told.get("command")
    fits = isinstance(words, list) and 0 < len(words) <= MOST_WORDS
    if not isinstance(words, list) or not fits or not all(isinstance(w, str) for w in words):
        raise Invalid(f"{GATE}.command", words, "give the words of a program as a list")
    try:
        check_program(words)
    except Invalid as fault:
        raise Invalid(f"{GATE}.command", fault.value, fault.advice) from None
    seconds = USUAL_SECONDS
    if told.get("timeout") is not None:
        field = f"{GATE}.timeout"
        seconds = parse_duration(str(told["timeout"]), field=field).total_seconds()
        if not 0 < seconds <= MOST_SECONDS:
            raise Invalid(field, told["timeout"], "give at most 10 minutes")
    return Gate(tuple(words), seconds)


def check_gate(spec: Mapping[str, Any], kind: TaskKind) -> None:
    """Refuse a gate that is none, or before something that cannot have one."""
    if gate_in(spec) is not None and kind is TaskKind.PYTHON:
        raise Invalid(GATE, "", "a callable decides by itself: leave it out")


def said_in(result: str | None) -> Said:
    """Return what the result of a gate says; Invalid if it says nothing that can be understood."""
    try:
        value = None if result is None else json.loads(result)
        value = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("wake"), bool):
        raise Invalid(GATE, result, ADVICE)
    reason = value.get("reason")
    if reason is not None and not isinstance(reason, str):
        raise Invalid(f"{GATE}.reason", reason, "write a text")
    state = json.dumps(value["state"], ensure_ascii=False) if "state" in value else None
    if state is not None and len(state.encode("utf-8", "replace")) > LONGEST_STATE:
        raise Invalid(f"{GATE}.state", state, "keep at most 64 KiB: more belongs in a file")
    given = value.get("input")
    if len(json.dumps(given)) > LONGEST_PAYLOAD // 2:
        raise Invalid(f"{GATE}.input", given, "hand on at most 128 KiB: more belongs in a file")
    return Said(value["wake"], None if reason is None else reason[:LONGEST_REASON], state, given)


def written(said: Said) -> str:
    """Return what a gate said as it is recorded with its attempt."""
    return json.dumps(said._asdict(), ensure_ascii=False)


def recorded(text: str | None) -> Said | None:
    """Return what is on record of a gate; None while it has said nothing."""
    return Said(**json.loads(text)) if text else None


def payload_with(payload: str, said: Said) -> str:
    """Return what a run is given, with what its gate hands on to it."""
    if said.input is None:
        return payload
    own = json.loads(payload)
    if own is None:
        told: object = {"input": said.input} if isinstance(said.input, str) else said.input
    else:
        told = {"payload": own, "gate": said.input}
    return json.dumps(told, ensure_ascii=False)
