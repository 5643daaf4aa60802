"""Runs and log lines as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from rota.cli.arguments import now
from rota.cli.context import Record
from rota.cli.display import (
    NOTHING,
    Column,
    Display,
    compact,
    instant,
    wall_time,
    wall_time_with_zone,
)
from rota.cli.task_text import summarise_result
from rota.flow.observe.time_text import (
    CHECK_WORDS,
    SUPPRESSION_WORDS,
    count_text,
    duration_text,
    first_line,
    whole_line,
)
from rota.model.agents import AgentErrorKind
from rota.model.runs import FINISHED
from rota.model.text import MORE, clean

SHORT = 60
PERCENT = "percent"
ANSI = "ansi"
"""The field of output events with terminal colors."""
MIB = 1024 * 1024
CHECK_TEXTS = {state.value: text for state, text in CHECK_WORDS.items()}
MARK_TEXTS = {mark.value: text for mark, text in SUPPRESSION_WORDS.items()}


def took(run: Record) -> str:
    """Return how long a run has worked."""
    if run["started_at"] is None:
        return NOTHING
    if run.get("took_seconds") is not None:
        return duration_text(timedelta(seconds=run["took_seconds"]))
    ended = now() if run["finished_at"] is None else instant(run["finished_at"])
    return duration_text(ended - instant(run["started_at"]))


RUN_COLUMNS = (
    Column("run", "id"),
    Column("task", "task"),
    Column("state", "state"),
    Column("checks", lambda run: run["suppressed"] or run["check_state"] or NOTHING),
    Column("started", "started_at", is_time=True),
    Column("took", took),
    Column("source", "source"),
    Column("result", lambda run: summarise_result(run, 2 * SHORT)),
)


def run_row(run: Record, zone: str) -> list[str]:
    """Return a run as a row of a list."""
    return [column.text(run, zone) for column in RUN_COLUMNS]


def run_columns(zone: str) -> list[str]:
    """Return the headings of a list of runs."""
    return [column.title(zone) for column in RUN_COLUMNS]


def event_row(event: Record, zone: str) -> list[str]:
    """Return an event as a row of a list."""
    if event["name"] == FAULT:
        return [event["name"], wall_time(event["at"], zone), agent_error_text(event["data"], zone)]
    data = " ".join(
        _datum(name, value)
        for name, value in event["data"].items()
        if name != ANSI and value is not None and value is not False
    )
    return [event["name"], wall_time(event["at"], zone), first_line(data)]


def _datum(name: str, value: object) -> str:
    """Return one field of an event."""
    if name == PERCENT and isinstance(value, float | int):
        return f"{value:g} %"
    return f"{name}={_short(value)}"


def agent_error_text(data: Record, zone: str) -> str:
    """Return an agent error as a sentence, with the retry that follows it."""
    kind = data.get("kind")
    sentence = AgentErrorKind(kind).sentence if kind in set(AgentErrorKind) else str(kind)
    if data.get("new_session"):
        return f"{sentence} It continues in a new session."
    detail = _short(data.get("detail", ""))
    if "retry" in data:
        what = sentence.rstrip(".").partition(";")[0] + (f" ({detail})" if detail else "")
        again = f"Rota tries again at {wall_time(data['at'], zone)}"
        return f"{what}; {again} ({data['retry']} of {data['of']})."
    return f"{sentence} {detail}".rstrip()


def answer_text(question: Record) -> str:
    """Return the answer to a question, with the result of an approved action."""
    outcome = question.get("outcome")
    answer = question["answer"] or ""
    return answer if outcome is None else f"{answer}: {outcome_text(outcome)}"


def question_lines(question: Record) -> list[str]:
    """Return the context of a question, and its default answer."""
    lines = [f"  {line}" for line in question["context"].splitlines() if line.strip()]
    if question["default"] is not None:
        lines.append(f"  Default if not answered in time: {question['default']}")
    return lines


def outcome_text(outcome: Record) -> str:
    """Return the result of an approved action."""
    if not outcome.get("ok"):
        return str(outcome.get("error", {}).get("message", "failed"))
    if "rows" in outcome:
        return f"{count_text(len(outcome['rows']), 'row')} found"
    if "state" in outcome:
        ended = outcome["state"] == "cancelled"
        return f"run {outcome['run']} is {'cancelled' if ended else 'stopping'}"
    return f"run {outcome['run']} is queued"


def show_run(out: Display, run: Record, zone: str, why: str = "") -> None:
    """Write a run with all details, and why it is queued."""
    out.pairs(_run_pairs(run, zone, why))
    started, at = f"started ({zone})", f"at ({zone})"
    _section(
        out,
        ["attempt", "cause", "outcome", started, "took", "processes", "error"],
        [_attempt_row(attempt, zone) for attempt in run["attempts"]] + running_row(run),
    )
    _section(out, ["attempt", "check", "passed", "evidence"], check_rows(run["attempts"]))
    events = [event_row(event, zone) for event in merge_retries(run["events"])]
    _section(out, ["event", at, "data"], events)
    questions = [_question_row(question, zone) for question in run["questions"]]
    _section(out, ["question", "text", "answer", "by", at], questions)
    for question in run["questions"]:
        if question["answered_at"] is None:
            for line in question_lines(question):
                out.line(line)
    deliveries = [_delivery_row(delivery) for delivery in run["deliveries"]]
    _section(out, ["delivery", "target", "state", "error", "body"], deliveries)


def _run_pairs(run: Record, zone: str, why: str) -> list[tuple[str, str]]:
    place = "" if run["queue_state"] is None else f" ({run['queue_state']})"
    upstream = f" of run {run['upstream']}" if run["upstream"] else ""
    times = [
        (name.removesuffix("_at"), wall_time_with_zone(run[name], zone) if run[name] else "")
        for name in ("slot_at", "created_at", "started_at", "finished_at")
    ]
    return [
        ("run", f"{run['id']} of {run['task']}"),
        ("state", f"{run['state']}{place}{', stuck' if run['stuck'] else ''}"),
        ("waits for", why),
        ("checks", checks_text(run)),
        ("source", run["source"] + upstream),
        *times,
        ("took", "" if run["started_at"] is None else took(run)),
        ("heartbeat", heartbeat_text(run)),
        ("payload", "" if run["payload"] is None else compact(run["payload"])),
        ("result", result_text(run)),
        *error_pairs(run),
    ]


def _attempt_row(attempt: Record, zone: str) -> list[str]:
    return [
        str(attempt["number"]),
        attempt["cause"],
        attempt["outcome"],
        wall_time(attempt["started_at"], zone),
        duration_text(instant(attempt["ended_at"]) - instant(attempt["started_at"])),
        exit_text(attempt["exit"]),
        first_line(attempt["error"], SHORT),
    ]


def _question_row(question: Record, zone: str) -> list[str]:
    return [
        str(question["id"]),
        first_line(question["action"] or question["question"]),
        first_line(answer_text(question)) or NOTHING,
        question["answered_by"] or NOTHING,
        wall_time(question["answered_at"], zone) if question["answered_at"] else NOTHING,
    ]


def _delivery_row(delivery: Record) -> list[str]:
    sent = delivery["state"] == "sent"
    return [
        str(delivery["id"]),
        f"{delivery['channel']}:{delivery['target']}",
        delivery["state"],
        NOTHING if sent else first_line(delivery["error"], SHORT) or NOTHING,
        first_line(delivery["body"], SHORT),
    ]


def ending_text(run: Record) -> str:
    """Return the sentence about an ended run, without its result."""
    state = run["state"]
    reason = "" if state == "succeeded" else whole_line(run["error"])
    ended = (
        reason if reason.startswith(f"{state} ") else f"{state}{': ' + reason if reason else ''}"
    )
    sentence = f"Run {run['id']} of {run['task']} {ended}"
    return sentence if sentence.endswith((".", "!", "?", "…")) else f"{sentence}."


def result_text(run: Record) -> str:
    """Return the complete result of a run, safe to show."""
    return "" if run["result"] is None else clean(_whole(run["result"])).rstrip("\n")


def error_pairs(run: Record) -> list[tuple[str, str]]:
    """Return the error of a run, labelled if it is that of an earlier attempt."""
    if run["state"] == "succeeded" or not run["error"]:
        return []
    if run["state"] in FINISHED:
        return [("error", clean(run["error"]))]
    return [("earlier", f"{_earlier(run)}: {clean(run['error'])}")]


def _earlier(run: Record) -> str:
    return f"attempt {run['attempt'] - (run['state'] == 'running')}"


def running_row(run: Record) -> list[list[str]]:
    """Return the running attempt of a run that has earlier ones, as a row."""
    if run["state"] != "running" or not run["attempts"]:
        return []
    return [[str(run["attempt"]), run["cause"], "running", *[NOTHING] * 3, ""]]


def checks_text(run: Record) -> str:
    """Return whether the checks of a run passed, and why it was not delivered."""
    texts = [CHECK_TEXTS.get(run["check_state"]), MARK_TEXTS.get(run["suppressed"])]
    return "; ".join(text for text in texts if text)


def check_rows(attempts: list[Record]) -> list[list[str]]:
    """Return the check results of attempts as rows."""
    return [
        [
            str(attempt["number"]),
            first_line(found["check"], SHORT),
            "yes" if found["passed"] else "no",
            first_line(found["evidence"], 2 * SHORT),
        ]
        for attempt in attempts
        for found in attempt["check_results"] or ()
    ]


def heartbeat_text(run: Record) -> str:
    """Return the last heartbeat of a running run."""
    beat = run["heartbeat"]
    if beat is None or run["state"] != "running":
        return ""
    parts = [f"{duration_text(now() - instant(beat['at']))} ago"]
    parts.append(beat["state"] if beat["alive"] else "not alive")
    if beat["processes"] is not None:
        parts.append(f"{beat['processes']} process{'' if beat['processes'] == 1 else 'es'}")
    if beat["cpu_seconds"] is not None:
        parts.append(f"{beat['cpu_seconds']:.1f} s CPU time")
    if beat["memory_bytes"] is not None:
        parts.append(f"{beat['memory_bytes'] / MIB:.0f} MiB")
    if beat["output_at"] is not None:
        parts.append(f"last output {duration_text(now() - instant(beat['output_at']))} ago")
    lines = [", ".join(parts), beat["last_line"], beat["missed_reason"]]
    return "\n".join([*filter(None, lines), *(beat["pane"] or "").rstrip().splitlines()])


def exit_text(ending: Record | None) -> str:
    """Return how the processes of an attempt ended."""
    if ending is None:
        return NOTHING
    parts = [str(ending["reason"]).removeprefix("lost:").replace("_", " ")]
    parts += ["killed"] if ending["killed"] else []
    parts += [] if ending["proven"] else ["exit not confirmed"]
    return ", ".join(parts)


def _whole(value: object) -> str:
    return value if isinstance(value, str) else compact(value)


def _short(value: object) -> str:
    return first_line(_whole(value), SHORT)


def _section(out: Display, columns: list[str], rows: list[list[str]]) -> None:
    if rows:
        out.line()
        out.table(columns, rows, "")


OUTPUT = "run.output"
FAULT = "run.agent_error"
OUTPUT_FIELDS = ("text", ANSI)
KINDS = set(AgentErrorKind)


def merge_retries(events: Iterable[Record]) -> Iterator[Record]:
    """Yield events, with an agent error and the retry that follows it as one.

    A transient error is held back until the next event, which says whether there is a retry.
    """
    held: Record | None = None
    for event in events:
        if held is not None:
            retried = event["name"] == FAULT and event["data"].get("kind") == held["data"]["kind"]
            if retried and "detail" not in event["data"]:
                event = {**event, "data": {**held["data"], **event["data"]}}  # noqa: PLW2901
            else:
                yield held
        held = event if _may_be_retried(event) else None
        if held is None:
            yield event
    if held is not None:
        yield held


def _may_be_retried(event: Record) -> bool:
    data = event["data"]
    if event["name"] != FAULT or "retry" in data or data.get("kind") not in KINDS:
        return False
    return AgentErrorKind(data["kind"]).transient


def drop_partial_lines(events: list[Record]) -> list[Record]:
    """Return the events of an ended run without the beginnings of lines that came in parts."""
    last = max((event["id"] for event in events if event["name"] == OUTPUT), default=0)
    return [kept for event in events for kept in _without_partial_line(event, last)]


def _without_partial_line(event: Record, last: int) -> Iterator[Record]:
    data = event["data"]
    if event["name"] != OUTPUT or event["id"] == last or not data["text"].endswith(MORE):
        yield event
        return
    texts = {name: text.removesuffix(MORE) for name, text in data.items() if name in OUTPUT_FIELDS}
    if texts["text"]:
        yield {**event, "data": {**data, **texts}}


def without_output(error: str, run: Record) -> str:
    """Return an error without lines that the output of the run contains; its reason stays."""
    output = {line.rstrip() for part in run["logs"] for line in part["text"].splitlines()}
    reason, *rest = error.splitlines()
    return "\n".join([reason, *(line for line in rest if line.rstrip() not in output)])
