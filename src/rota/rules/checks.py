"""Checks, gates and next checks of a task: their fields in its spec, and their evaluation."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rota.errors import Invalid, shown
from rota.model.checks import Check, CheckKind, CheckResult
from rota.model.executors import NO_EXECUTORS, ExecutorRegistry
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
EXTRA_FIELDS = {
    CheckKind.COMMAND: {"timeout"},
    CheckKind.URL: {"contains", "timeout"},
    CheckKind.NOT_LIKE: {"regex"},
}
"""Further fields of each kind of check."""


class CheckedOutcome(NamedTuple):
    """What checks look at: the result as JSON text, and the tools called."""

    result: str | None
    tools: Collection[str] = ()


def checks_in(spec: Mapping[str, Any]) -> tuple[Check, ...]:
    """Return the checks of a spec; raise Invalid for the first wrong one."""
    items = spec.get(CHECKS)
    if items is None:
        return ()
    if not isinstance(items, list) or len(items) > MAX_CHECKS:
        raise Invalid(CHECKS, items, f"give a list of at most {MAX_CHECKS} checks")
    return tuple(_check(one, f"{CHECKS}[{n}]") for n, one in enumerate(items))


def patterns_in(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the regular expressions of a spec's checks, each with its field.

    They are not compiled here, because compiling a hostile one may take unlimited time.
    """
    found = enumerate(checks_in(spec))
    return [(f"{CHECKS}[{n}].{check.kind}", check.wanted) for n, check in found if check.regex]


def check_checks(spec: Mapping[str, Any], kind: TaskKind) -> None:
    """Raise Invalid for checks that are wrong or that a task of this kind cannot have."""
    checks = checks_in(spec)
    if checks and kind is TaskKind.PYTHON:
        raise Invalid(CHECKS, checks[0].kind.value, "callables raise errors instead: leave it out")
    for check in checks:
        if check.kind is CheckKind.TOOL_CALLED and kind is not TaskKind.AGENT:
            raise Invalid(CHECKS, check.kind.value, "only agents call tools: leave it out")


def _check(item: object, field: str) -> Check:
    if not isinstance(item, dict):
        raise Invalid(field, item, 'write an object, like {"min_length": 200}')
    kinds = [kind for kind in CheckKind if kind.value in item]
    if len(kinds) != 1:
        raise Invalid(field, list(item), f"name exactly one of {', '.join(CheckKind)}")
    kind = kinds[0]
    stray = next(
        (name for name in item if name != kind and name not in EXTRA_FIELDS.get(kind, ())), None
    )
    if stray is not None:
        raise Invalid(f"{field}.{stray}", item[stray], f"does not go with {kind}: leave it out")
    made = Check(
        kind=kind,
        wanted=item[kind],
        contains=item.get("contains"),
        regex=item.get("regex") is True,
        seconds=_seconds(item.get("timeout"), field),
    )
    CHECKERS[kind](made, f"{field}.{kind}", item)
    return made


def _seconds(value: object, field: str) -> float | None:
    if value is None:
        return None
    length = parse_duration(str(value), field=f"{field}.timeout").total_seconds()
    if not 0 < length <= MAX_SECONDS:
        raise Invalid(f"{field}.timeout", value, "give at most 10 minutes")
    return length


def _path(check: Check, field: str, _item: Mapping[str, Any]) -> None:
    path = check.wanted
    if not isinstance(path, str) or not 0 < len(path) <= MAX_TEXT or "\0" in path:
        raise Invalid(field, path, "name a file inside the task's folder")
    if {"", ".", ".."} & set(path.split("/")):
        raise Invalid(field, path, "name a file inside the task's folder, without . and .. in it")


def _argv(check: Check, field: str, _item: Mapping[str, Any]) -> None:
    argv = check.wanted
    fits = isinstance(argv, list) and 0 < len(argv) <= MAX_ARGUMENTS
    if not fits or not all(isinstance(word, str) for word in argv):
        raise Invalid(field, argv, "give the words of a program as a list")
    try:
        check_program(argv)
    except Invalid as error:
        raise Invalid(field, error.value, error.advice) from None


def _address(check: Check, field: str, _item: Mapping[str, Any]) -> None:
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


def _schema(check: Check, field: str, _item: Mapping[str, Any]) -> None:
    check_schema(check.wanted, field)


def _length(check: Check, field: str, _item: Mapping[str, Any]) -> None:
    number = check.wanted
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or not 0 < number <= MAX_MIN_LENGTH:
        raise Invalid(field, number, f"give a number of characters from 1 to {MAX_MIN_LENGTH}")


def _tool(check: Check, field: str, _item: Mapping[str, Any]) -> None:
    _text(check.wanted, field)


def _not_like(check: Check, field: str, item: Mapping[str, Any]) -> None:
    _text(check.wanted, field)
    if not isinstance(item.get("regex", False), bool):
        raise Invalid(f"{field}.regex", item["regex"], "say true or false")
    if check.regex and len(check.wanted) > MAX_PATTERN:
        raise Invalid(field, check.wanted, f"write at most {MAX_PATTERN} characters")


def _text(text: object, field: str) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= MAX_TEXT or not text.strip():
        raise Invalid(field, text, f"write a text of at most {MAX_TEXT} characters")


CHECKERS = {
    CheckKind.FILE_NEWER: _path,
    CheckKind.COMMAND: _argv,
    CheckKind.URL: _address,
    CheckKind.JSON_SCHEMA: _schema,
    CheckKind.MIN_LENGTH: _length,
    CheckKind.TOOL_CALLED: _tool,
    CheckKind.NOT_LIKE: _not_like,
}


def name_of(check: Check) -> str:
    """Return the name of a check for people."""
    argument = check.wanted
    if check.kind is CheckKind.JSON_SCHEMA:
        return check.kind.value
    if check.kind is CheckKind.COMMAND:
        argument = " ".join(argument)
    if check.regex:
        argument = f"/{argument}/"
    return f"{check.kind} {shown(str(argument))}"


def evaluate(check: Check, outcome: CheckedOutcome) -> CheckResult | None:
    """Return the result of a check of the outcome; None if it needs a probe or may be slow."""
    name = name_of(check)
    match check.kind:
        case CheckKind.MIN_LENGTH:
            length = len(text_of(outcome.result).strip())
            return CheckResult(name, length >= check.wanted, f"the result has {length} characters")
        case CheckKind.TOOL_CALLED:
            called = check.wanted in outcome.tools
            others = ", ".join(sorted(outcome.tools)[:10]) or "none"
            evidence = "it was called" if called else f"it was not called; called tools: {others}"
            return CheckResult(name, called, evidence)
        case CheckKind.NOT_LIKE if not check.regex:
            found = check.wanted.casefold() in text_of(outcome.result).casefold()
            text = "the result contains it" if found else "the result does not contain it"
            return CheckResult(name, not found, text)
        case _:
            return None


def failure_message(findings: Sequence[CheckResult]) -> str | None:
    """Return why the checks fail, or None: one sentence for the first, the others below it.

    The number of failed checks comes first, because the end of a long line is cut off.
    """
    against = [finding for finding in findings if not finding.passed]
    if not against:
        return None
    sentences = [f"{finding.check}: {finding.evidence}" for finding in against]
    who = "a check failed" if len(against) == 1 else f"{len(against)} checks failed"
    return "\n".join([f"It reported success, but {who}: {sentences[0]}", *sentences[1:]])


def findings_to_json(findings: Sequence[CheckResult]) -> str:
    """Return check results as they are stored."""
    return json.dumps([finding._asdict() for finding in findings], ensure_ascii=False)


GATE = "gate"
MAX_STATE = 64 * 1024
MAX_REASON = 1_000
ADVICE = 'end with one line like {"wake": true}, or write it to ROTA_RESULT_FILE'


class GateSpec(NamedTuple):
    """The argv of a gate, and its time limit."""

    words: tuple[str, ...]
    seconds: float


class GateReply(NamedTuple):
    """The reply of a gate: whether to run, why, state for next time, and input for the run."""

    wake: bool
    reason: str | None = None
    state: str | None = None
    """JSON text; None keeps the stored state."""
    input: object = None


def gate_in(spec: Mapping[str, Any]) -> GateSpec | None:
    """Return the gate of a spec; raise Invalid if it is malformed."""
    gate = spec.get(GATE)
    if gate is None:
        return None
    if not isinstance(gate, dict) or not gate.keys() <= {"command", "timeout"}:
        raise Invalid(GATE, gate, "give a command and optionally a timeout")
    words = gate.get("command")
    fits = isinstance(words, list) and 0 < len(words) <= MAX_ARGUMENTS
    if not isinstance(words, list) or not fits or not all(isinstance(w, str) for w in words):
        raise Invalid(f"{GATE}.command", words, "give the words of a program as a list")
    try:
        check_program(words)
    except Invalid as error:
        raise Invalid(f"{GATE}.command", error.value, error.advice) from None
    seconds = DEFAULT_SECONDS
    if gate.get("timeout") is not None:
        field = f"{GATE}.timeout"
        seconds = parse_duration(str(gate["timeout"]), field=field).total_seconds()
        if not 0 < seconds <= MAX_SECONDS:
            raise Invalid(field, gate["timeout"], "give at most 10 minutes")
    return GateSpec(tuple(words), seconds)


def check_gate(spec: Mapping[str, Any], kind: TaskKind) -> None:
    """Raise Invalid for a malformed gate, or for a kind of task that cannot have one."""
    if gate_in(spec) is not None and kind is TaskKind.PYTHON:
        raise Invalid(GATE, "", "callables decide themselves: leave it out")


def read_reply(result: str | None) -> GateReply:
    """Parse the result of a gate; raise Invalid if it is not a reply."""
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
    input_value = value.get("input")
    if len(json.dumps(input_value)) > MAX_PAYLOAD_BYTES // 2:
        raise Invalid(
            f"{GATE}.input", input_value, "hand on at most 128 KiB: more belongs in a file"
        )
    return GateReply(
        value["wake"], None if reason is None else reason[:MAX_REASON], state, input_value
    )


def reply_to_json(reply: GateReply) -> str:
    """Return a reply as it is stored with its attempt."""
    return json.dumps(reply._asdict(), ensure_ascii=False)


def reply_from_json(text: str | None) -> GateReply | None:
    """Return the stored reply of a gate; None if there is none yet."""
    return GateReply(**json.loads(text)) if text else None


def add_gate_input(payload: str, reply: GateReply) -> str:
    """Return the payload of a run with the input from its gate."""
    if reply.input is None:
        return payload
    own = json.loads(payload)
    if own is None:
        combined: object = {"input": reply.input} if isinstance(reply.input, str) else reply.input
    else:
        combined = {"payload": own, "gate": reply.input}
    return json.dumps(combined, ensure_ascii=False)


NEXT_CHECK = "next_check"
MIN_NEXT_CHECK = timedelta(minutes=1)
MAX_NEXT_CHECK = timedelta(days=366)
KEY = "next:"
"""Start of the key of a run that an earlier run requested."""


class NextCheckLimits(NamedTuple):
    """The range within which a task's agent may choose its next check."""

    minimum: timedelta
    maximum: timedelta


def next_check_limits(spec: Mapping[str, Any]) -> NextCheckLimits | None:
    """Return the limits in a spec; raise Invalid if they are malformed."""
    limits = spec.get(NEXT_CHECK)
    if limits is None:
        return None
    if not isinstance(limits, dict) or limits.keys() != {"min", "max"}:
        raise Invalid(NEXT_CHECK, limits, "give min and max, like 10m and 1d")
    minimum = parse_duration(str(limits["min"]), field=f"{NEXT_CHECK}.min")
    maximum = parse_duration(str(limits["max"]), field=f"{NEXT_CHECK}.max")
    if not MIN_NEXT_CHECK <= minimum <= maximum <= MAX_NEXT_CHECK:
        raise Invalid(NEXT_CHECK, f"{limits['min']}..{limits['max']}", "use 1m to 366d")
    return NextCheckLimits(minimum, maximum)


def check_next(spec: Mapping[str, Any], kind: TaskKind) -> None:
    """Raise Invalid for malformed limits, or for a kind of task that cannot have them."""
    if next_check_limits(spec) is not None and kind is TaskKind.PYTHON:
        raise Invalid(NEXT_CHECK, "", "callables queue their own runs: leave it out")


def next_run(task: Task, run_id: RunId, delay: str | None, now: int) -> RunBatch | None:
    """Return the run that an agent requests next, at a time within the limits of its task.

    None if it requests none, the task allows none, or its text is not a duration.
    """
    bounds = next_check_limits(task.spec)
    if bounds is None or delay is None or not task.enabled:
        return None
    try:
        requested = parse_duration(delay, field=NEXT_CHECK)
    except Invalid:
        return None
    wait = min(max(requested, bounds.minimum), bounds.maximum)
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
"""Fields of a spec that this module reads."""


NO_NETWORK = "its programs have no open network, so its checks have none: leave it out"


def check_done(
    spec: Mapping[str, Any],
    kind: TaskKind,
    role: SpaceRole = SpaceRole.MAIN,
    executors: ExecutorRegistry = NO_EXECUTORS,
) -> None:
    """Raise Invalid for the first error in the checks, gate and next check of a spec."""
    check_checks(spec, kind)
    check_gate(spec, kind)
    check_next(spec, kind)
    asks = any(check.kind is CheckKind.URL for check in checks_in(spec))
    if asks and not can_reach_outside(site_of(spec, role, executors)):
        raise Invalid(CHECKS, CheckKind.URL.value, NO_NETWORK)


def can_reach_outside(site: Site) -> bool:
    """Whether a task's checks may request URLs, which is so if its own programs could.

    Otherwise an isolated program could send data to the outside through a check.
    """
    return not site.isolated or site.network is NetworkAccess.OPEN


FENCE = "```"


def text_of(result: str | None) -> str:
    """Return a result as text: a string as it is, other data as JSON."""
    if result is None:
        return ""
    value = json.loads(result)
    return value if isinstance(value, str) else result


def value_of(result: str | None) -> object:
    """Return a result as data, parsing text that is JSON; raise ValueError if it is not JSON."""
    value = None if result is None else json.loads(result)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(strip_fence(value))
    except RecursionError:
        raise ValueError(value[:80]) from None


def strip_fence(text: str) -> str:
    """Return the content of a text that is one fenced code block, or the text itself.

    It takes a single pass, because answers can be long.
    """
    head, _, rest = text.strip().partition("\n")
    inner, _, last = rest.rpartition("\n")
    language = head.removeprefix(FENCE).strip()
    opened = head.startswith(FENCE) and (not language or language.isidentifier())
    return inner if opened and last.strip() == FENCE else text
