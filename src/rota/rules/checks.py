"""Checks, gates and next checks as a task's spec names them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rota.errors import Invalid, shown
from rota.model.checks import Check, CheckKind, CheckResult
from rota.model.ids import RunId
from rota.model.programs import NetworkAccess, Site
from rota.model.runs import MAX_PAYLOAD_BYTES, RunBatch, RunSource
from rota.model.spaces import SpaceRole
from rota.model.tasks import Task, TaskKind
from rota.rules.json_schema import check_schema
from rota.rules.queue import new_run
from rota.rules.task_spec import check_program, is_in_conversation, site_of
from rota.timing.durations import parse_duration

CHECKS = "checks"
MAX_CHECKS = 20
MAX_ARGUMENTS = 1_000
MAX_TEXT = 10_000
MAX_PATTERN = 1_000
MAX_ADDRESS = 2_000
MAX_MIN_LENGTH = 256 * 1024
DEFAULT_SECONDS = 60.0
MAX_SECONDS = 600.0
BESIDE = {
    CheckKind.COMMAND: {"timeout"},
    CheckKind.URL: {"contains", "timeout"},
    CheckKind.NOT_LIKE: {"regex"},
}
"""What may be said beside the word that names a check."""


class CheckedOutcome(NamedTuple):
    """What an attempt is checked by: its result, as JSON text, and the tools it has called."""

    result: str | None
    tools: Collection[str] = ()


def checks_in(spec: Mapping[str, Any]) -> tuple[Check, ...]:
    """Return the checks of a record; Invalid, naming the first one that is wrong."""
    told = spec.get(CHECKS)
    if told is None:
        return ()
    if not isinstance(told, list) or len(told) > MAX_CHECKS:
        raise Invalid(CHECKS, told, f"give a list of at most {MAX_CHECKS} checks")
    return tuple(_check(one, f"{CHECKS}[{n}]") for n, one in enumerate(told))


def patterns_in(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the regular expressions of a record's checks, each with its field.

    Whether they are any is found out where they are matched: to compile one may take for ever.
    """
    found = enumerate(checks_in(spec))
    return [(f"{CHECKS}[{n}].{check.kind}", check.wanted) for n, check in found if check.regex]


def check_checks(spec: Mapping[str, Any], kind: TaskKind) -> None:
    """Refuse checks that are wrong, or that a task of its kind cannot have."""
    checks = checks_in(spec)
    if checks and kind is TaskKind.PYTHON:
        raise Invalid(
            CHECKS, checks[0].kind.value, "a callable raises what is wrong: leave them out"
        )
    for check in checks:
        if check.kind is CheckKind.TOOL_CALLED and kind is not TaskKind.AGENT:
            raise Invalid(CHECKS, check.kind.value, "only agents call tools: leave it out")


def _check(told: object, field: str) -> Check:
    if not isinstance(told, dict):
        raise Invalid(field, told, 'write an object, like {"min_length": 200}')
    kinds = [kind for kind in CheckKind if kind.value in told]
    if len(kinds) != 1:
        raise Invalid(field, list(told), f"name exactly one of {', '.join(CheckKind)}")
    kind = kinds[0]
    stray = next((name for name in told if name != kind and name not in BESIDE.get(kind, ())), None)
    if stray is not None:
        raise Invalid(f"{field}.{stray}", told[stray], f"does not go with {kind}: leave it out")
    made = Check(
        kind=kind,
        wanted=told[kind],
        contains=told.get("contains"),
        regex=told.get("regex") is True,
        seconds=_seconds(told.get("timeout"), field),
    )
    CHECKERS[kind](made, f"{field}.{kind}", told)
    return made


def _seconds(told: object, field: str) -> float | None:
    if told is None:
        return None
    length = parse_duration(str(told), field=f"{field}.timeout").total_seconds()
    if not 0 < length <= MAX_SECONDS:
        raise Invalid(f"{field}.timeout", told, "give at most 10 minutes")
    return length


def _path(check: Check, field: str, _told: Mapping[str, Any]) -> None:
    path = check.wanted
    if not isinstance(path, str) or not 0 < len(path) <= MAX_TEXT or "\0" in path:
        raise Invalid(field, path, "name a file inside the task's folder")
    if {"", ".", ".."} & set(path.split("/")):
        raise Invalid(field, path, "name a file inside the task's folder, without . and .. in it")


def _words(check: Check, field: str, _told: Mapping[str, Any]) -> None:
    words = check.wanted
    fits = isinstance(words, list) and 0 < len(words) <= MAX_ARGUMENTS
    if not fits or not all(isinstance(word, str) for word in words):
        raise Invalid(field, words, "give the words of a program as a list")
    try:
        check_program(words)
    except Invalid as fault:
        raise Invalid(field, fault.value, fault.advice) from None


def _address(check: Check, field: str, _told: Mapping[str, Any]) -> None:
    url = check.wanted
    if not isinstance(url, str) or not 0 < len(url) <= MAX_ADDRESS or not url.isprintable():
        raise Invalid(field, url, "write an address, like https://example.org/status")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Invalid(field, url, "this cannot be read as an address") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or " " in url:
        raise Invalid(field, url, "begin with http:// or https:// and a host")
    if parts.username is not None or port == 0:
        raise Invalid(field, url, "leave out names and passwords: a check has none to give")
    if check.contains is not None:
        _text(check.contains, f"{field}.contains")


def _schema(check: Check, field: str, _told: Mapping[str, Any]) -> None:
    check_schema(check.wanted, field)


def _length(check: Check, field: str, _told: Mapping[str, Any]) -> None:
    number = check.wanted
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or not 0 < number <= MAX_MIN_LENGTH:
        raise Invalid(field, number, f"give a number of characters from 1 to {MAX_MIN_LENGTH}")


def _tool(check: Check, field: str, _told: Mapping[str, Any]) -> None:
    _text(check.wanted, field)


def _unwanted(check: Check, field: str, told: Mapping[str, Any]) -> None:
    _text(check.wanted, field)
    if not isinstance(told.get("regex", False), bool):
        raise Invalid(f"{field}.regex", told["regex"], "say true or false")
    if check.regex and len(check.wanted) > MAX_PATTERN:
        raise Invalid(field, check.wanted, f"write at most {MAX_PATTERN} characters")


def _text(text: object, field: str) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= MAX_TEXT or not text.strip():
        raise Invalid(field, text, f"write a text of at most {MAX_TEXT} characters")


CHECKERS = {
    CheckKind.FILE_NEWER: _path,
    CheckKind.COMMAND: _words,
    CheckKind.URL: _address,
    CheckKind.JSON_SCHEMA: _schema,
    CheckKind.MIN_LENGTH: _length,
    CheckKind.TOOL_CALLED: _tool,
    CheckKind.NOT_LIKE: _unwanted,
}


def name_of(check: Check) -> str:
    """Return a check as people name it."""
    wanted = check.wanted
    if check.kind is CheckKind.JSON_SCHEMA:
        return check.kind.value
    if check.kind is CheckKind.COMMAND:
        wanted = " ".join(wanted)
    if check.regex:
        wanted = f"/{wanted}/"
    return f"{check.kind} {shown(str(wanted))}"


def evaluate(check: Check, outcome: CheckedOutcome) -> CheckResult | None:
    """Return what a check finds in a result; None if it looks at the world or may take long."""
    name = name_of(check)
    match check.kind:
        case CheckKind.MIN_LENGTH:
            length = len(text_of(outcome.result).strip())
            return CheckResult(name, length >= check.wanted, f"the result has {length} characters")
        case CheckKind.TOOL_CALLED:
            called = check.wanted in outcome.tools
            others = ", ".join(sorted(outcome.tools)[:10]) or "none"
            told = "it was called" if called else f"it was not called; called were: {others}"
            return CheckResult(name, called, told)
        case CheckKind.NOT_LIKE if not check.regex:
            found = check.wanted.casefold() in text_of(outcome.result).casefold()
            return CheckResult(name, not found, "the result has it" if found else "it is not there")
        case _:
            return None


def failing(findings: Sequence[CheckResult]) -> str | None:
    """Return in one sentence, and the rest below it, what speaks against a success.

    How many there are stands before the first one, because the end of a long line is cut off.
    """
    against = [finding for finding in findings if not finding.passed]
    if not against:
        return None
    sentences = [f"{finding.check}: {finding.evidence}" for finding in against]
    who = "a check says" if len(against) == 1 else f"{len(against)} checks say"
    return "\n".join([f"It says it is done, and {who} it is not: {sentences[0]}", *sentences[1:]])


def failure_text(findings: Sequence[CheckResult]) -> str:
    """Return findings as they are recorded."""
    return json.dumps([finding._asdict() for finding in findings], ensure_ascii=False)


GATE = "gate"
MAX_STATE = 64 * 1024
MAX_REASON = 1_000
ADVICE = 'end with one line like {"wake": true}, or write it to ROTA_RESULT_FILE'


class GateSpec(NamedTuple):
    """The words of a gate, and how long it may take."""

    words: tuple[str, ...]
    seconds: float


class GateReply(NamedTuple):
    """What a gate said: whether to wake, why, what to find again, and what to hand on."""

    wake: bool
    reason: str | None = None
    state: str | None = None
    """JSON text; None leaves what stands."""
    input: object = None


def gate_in(spec: Mapping[str, Any]) -> GateSpec | None:
    """Return the gate of a record; Invalid if it is none."""
    told = spec.get(GATE)
    if told is None:
        return None
    if not isinstance(told, dict) or not told.keys() <= {"command", "timeout"}:
        raise Invalid(GATE, told, "give its command and, if it needs one, a timeout")
    words = told.get("command")
    fits = isinstance(words, list) and 0 < len(words) <= MAX_ARGUMENTS
    if not isinstance(words, list) or not fits or not all(isinstance(w, str) for w in words):
        raise Invalid(f"{GATE}.command", words, "give the words of a program as a list")
    try:
        check_program(words)
    except Invalid as fault:
        raise Invalid(f"{GATE}.command", fault.value, fault.advice) from None
    seconds = DEFAULT_SECONDS
    if told.get("timeout") is not None:
        field = f"{GATE}.timeout"
        seconds = parse_duration(str(told["timeout"]), field=field).total_seconds()
        if not 0 < seconds <= MAX_SECONDS:
            raise Invalid(field, told["timeout"], "give at most 10 minutes")
    return GateSpec(tuple(words), seconds)


def check_gate(spec: Mapping[str, Any], kind: TaskKind) -> None:
    """Refuse a gate that is none, or before something that cannot have one."""
    if gate_in(spec) is not None and kind is TaskKind.PYTHON:
        raise Invalid(GATE, "", "a callable decides by itself: leave it out")


def read_reply(result: str | None) -> GateReply:
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
    if state is not None and len(state.encode("utf-8", "replace")) > MAX_STATE:
        raise Invalid(f"{GATE}.state", state, "keep at most 64 KiB: more belongs in a file")
    given = value.get("input")
    if len(json.dumps(given)) > MAX_PAYLOAD_BYTES // 2:
        raise Invalid(f"{GATE}.input", given, "hand on at most 128 KiB: more belongs in a file")
    return GateReply(value["wake"], None if reason is None else reason[:MAX_REASON], state, given)


def reply_to_json(said: GateReply) -> str:
    """Return what a gate said as it is recorded with its attempt."""
    return json.dumps(said._asdict(), ensure_ascii=False)


def reply_from_json(text: str | None) -> GateReply | None:
    """Return what is on record of a gate; None while it has said nothing."""
    return GateReply(**json.loads(text)) if text else None


def payload_with(payload: str, said: GateReply) -> str:
    """Return what a run is given, with what its gate hands on to it."""
    if said.input is None:
        return payload
    own = json.loads(payload)
    if own is None:
        told: object = {"input": said.input} if isinstance(said.input, str) else said.input
    else:
        told = {"payload": own, "gate": said.input}
    return json.dumps(told, ensure_ascii=False)


NEXT_CHECK = "next_check"
SHORTEST = timedelta(minutes=1)
LONGEST = timedelta(days=366)
KEY = "next:"
"""How the key of a run begins that an earlier one asked for."""


class NextCheckLimits(NamedTuple):
    """How soon and how late a task lets its agent look again."""

    least: timedelta
    most: timedelta


def bounds_in(spec: Mapping[str, Any]) -> NextCheckLimits | None:
    """Return the bounds of a record; Invalid if they are none."""
    told = spec.get(NEXT_CHECK)
    if told is None:
        return None
    if not isinstance(told, dict) or told.keys() != {"min", "max"}:
        raise Invalid(NEXT_CHECK, told, "give min and max, like 10m and 1d")
    least = parse_duration(str(told["min"]), field=f"{NEXT_CHECK}.min")
    most = parse_duration(str(told["max"]), field=f"{NEXT_CHECK}.max")
    if not SHORTEST <= least <= most <= LONGEST:
        raise Invalid(NEXT_CHECK, f"{told['min']}..{told['max']}", "go from 1m up to 366d")
    return NextCheckLimits(least, most)


def check_next(spec: Mapping[str, Any], kind: TaskKind) -> None:
    """Refuse bounds that are none, or that nobody could use."""
    if bounds_in(spec) is not None and kind is TaskKind.PYTHON:
        raise Invalid(NEXT_CHECK, "", "a callable queues its next run by itself: leave it out")


def next_run(task: Task, run_id: RunId, words: str | None, now: int) -> RunBatch | None:
    """Return the run that an agent wants next, as soon or late as its task allows.

    None if it wants none, its task lets it have none, or its words are no length of time.
    """
    bounds = bounds_in(task.spec)
    if bounds is None or words is None or not task.enabled:
        return None
    try:
        wanted = parse_duration(words, field=NEXT_CHECK)
    except Invalid:
        return None
    wait = min(max(wanted, bounds.least), bounds.most)
    at = now + wait // timedelta(microseconds=1)
    template = new_run(
        task.id,
        task.space_id,
        task.route,
        task.policy,
        RunSource.AFTER,
        now,
        available_at=at,
        upstream_id=run_id,
        thread=task.thread,
        in_conversation=is_in_conversation(task),
    )
    return RunBatch(template, ["null"], [f"{KEY}{run_id}"])


DONE = (CHECKS, GATE, NEXT_CHECK)
"""What a record may say of this."""


NO_WAY_OUT = "its programs reach no open network, and so do its checks: leave it out"


def check_done(spec: Mapping[str, Any], kind: TaskKind, role: SpaceRole = SpaceRole.MAIN) -> None:
    """Raise Invalid for the first thing that is wrong, or that such a task cannot have."""
    check_checks(spec, kind)
    check_gate(spec, kind)
    check_next(spec, kind)
    asks = any(check.kind is CheckKind.URL for check in checks_in(spec))
    if asks and not can_reach_outside(site_of(spec, role)):
        raise Invalid(CHECKS, CheckKind.URL.value, NO_WAY_OUT)


def can_reach_outside(site: Site) -> bool:
    """Whether a task's checks may ask addresses: where its own programs could.

    Else what is behind walls could have words carried out by a check.
    """
    return not site.isolated or site.network is NetworkAccess.OPEN


FENCE = "```"


def text_of(result: str | None) -> str:
    """Return a result as words: a text as it is, data as JSON."""
    if result is None:
        return ""
    value = json.loads(result)
    return value if isinstance(value, str) else result


def value_of(result: str | None) -> object:
    """Return a result as data; a text that is JSON, also between fences, is read. ValueError."""
    value = None if result is None else json.loads(result)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(unfenced(value))
    except RecursionError:
        raise ValueError(value[:80]) from None


def unfenced(text: str) -> str:
    """Return what stands between the fences of a text that is one block of code; else the text.

    It takes one pass: an agent's answer is as long as it likes.
    """
    head, _, rest = text.strip().partition("\n")
    inner, _, last = rest.rpartition("\n")
    language = head.removeprefix(FENCE).strip()
    opened = head.startswith(FENCE) and (not language or language.isidentifier())
    return inner if opened and last.strip() == FENCE else text
