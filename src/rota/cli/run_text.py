"""Runs and log lines as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from rota.cli.arguments import now
from rota.cli.context import Record
from rota.cli.display import NOTHING, Display, compact, instant, wall_time, wall_time_with_zone
from rota.cli.task_text import said
from rota.flow.observe.time_text import duration_text, first_line, whole_line
from rota.flow.observe.views import MARKS as MARK_WORDS
from rota.flow.observe.views import WORDS
from rota.model.agents import AgentErrorKind
from rota.model.runs import FINISHED
from rota.model.text import MORE, clean

SHORT = 60
PERCENT = "percent"
COLOURED = "ansi"
"""What is for terminals alone."""
MIB = 1024 * 1024
CHECKED = {checked.value: words for checked, words in WORDS.items()}
MARKS = {mark.value: words for mark, words in MARK_WORDS.items()}


def took(run: Record) -> str:
    """Return how long a run has worked."""
    if run["started_at"] is None:
        return NOTHING
    if run.get("took_seconds") is not None:
        return duration_text(timedelta(seconds=run["took_seconds"]))
    ended = now() if run["finished_at"] is None else instant(run["finished_at"])
    return duration_text(ended - instant(run["started_at"]))


def run_row(run: Record, zone: str) -> list[str]:
    """Return a run as a row of a list."""
    return [
        str(run["id"]),
        run["task"],
        run["state"],
        run["suppressed"] or run["check_state"] or NOTHING,
        wall_time(run["started_at"], zone),
        took(run),
        run["source"],
        said(run, 2 * SHORT),
    ]


def run_columns(zone: str) -> list[str]:
    """Return what stands above the rows."""
    return ["run", "task", "state", "checked", f"start ({zone})", "took", "source", "result"]


def event_row(event: Record, zone: str) -> list[str]:
    """Return an event as a row of a list."""
    if event["name"] == FAULT:
        return [event["name"], wall_time(event["at"], zone), fault_words(event["data"], zone)]
    data = " ".join(
        _datum(name, value)
        for name, value in event["data"].items()
        if name != COLOURED and value is not None and value is not False
    )
    return [event["name"], wall_time(event["at"], zone), first_line(data)]


def _datum(name: str, value: object) -> str:
    """Return one thing that an event tells."""
    if name == PERCENT and isinstance(value, float | int):
        return f"{value:g} %"
    return f"{name}={_short(value)}"


def fault_words(data: Record, zone: str) -> str:
    """Return what went wrong with an agent as a sentence, and what is done about it."""
    kind = data.get("kind")
    sentence = AgentErrorKind(kind).sentence if kind in set(AgentErrorKind) else str(kind)
    if data.get("new_session"):
        return f"{sentence} It goes on in a new one."
    if "retry" in data:
        what, said = sentence.rstrip(".").partition(";")[0], _short(data.get("detail", ""))
        what += f" ({said})" if said else ""
        again = f"Rota tries again at {wall_time(data['at'], zone)}"
        return f"{what}; {again} ({data['retry']} of {data['of']})."
    return f"{sentence} {_short(data.get('detail', ''))}".rstrip()


def answer_words(question: Record) -> str:
    """Return what a question was answered, and what Rota did because of it."""
    outcome = question.get("outcome")
    answer = question["answer"] or ""
    return answer if outcome is None else f"{answer}: {outcome_words(outcome)}"


def question_lines(question: Record) -> list[str]:
    """Return what is to be known before a question is answered, and what counts if nobody does."""
    told = [f"  {line}" for line in question["context"].splitlines() if line.strip()]
    if question["default"] is not None:
        told.append(f"  Without an answer in time: {question['default']}")
    return told


def outcome_words(outcome: Record) -> str:
    """Return what came of an action that Rota did itself."""
    if not outcome.get("ok"):
        return str(outcome.get("error", {}).get("message", "it failed"))
    if "rows" in outcome:
        rows = len(outcome["rows"])
        return f"{rows} row{'' if rows == 1 else 's'} found"
    if "state" in outcome:
        ended = outcome["state"] == "cancelled"
        return f"run {outcome['run']} is {'cancelled' if ended else 'told to stop'}"
    return f"run {outcome['run']} is queued"


def tell_run(out: Display, run: Record, zone: str, why: str = "") -> None:
    """Tell a run with everything that belongs to it, and why it is queued."""
    where = "" if run["queue_state"] is None else f" ({run['queue_state']})"
    of = f" of run {run['upstream']}" if run["upstream"] else ""
    out.pairs(
        [
            ("run", f"{run['id']} of {run['task']}"),
            ("state", f"{run['state']}{where}{', stuck' if run['stuck'] else ''}"),
            ("waits", why),
            ("checked", checked_words(run)),
            ("source", run["source"] + of),
            *[
                (
                    name.removesuffix("_at"),
                    "" if run[name] is None else wall_time_with_zone(run[name], zone),
                )
                for name in ("slot_at", "created_at", "started_at", "finished_at")
            ],
            ("took", "" if run["started_at"] is None else took(run)),
            ("heard of", heartbeat_words(run)),
            ("payload", "" if run["payload"] is None else compact(run["payload"])),
            ("result", result_words(run)),
            *error_pairs(run),
        ]
    )
    _section(
        out,
        ["attempt", "cause", "outcome", f"started ({zone})", "took", "processes", "error"],
        [
            [
                str(a["number"]),
                a["cause"],
                a["outcome"],
                wall_time(a["started_at"], zone),
                duration_text(instant(a["ended_at"]) - instant(a["started_at"])),
                ending_words(a["exit"]),
                first_line(a["error"], SHORT),
            ]
            for a in run["attempts"]
        ]
        + going_row(run),
    )
    _section(out, ["attempt", "check", "holds", "evidence"], check_rows(run["attempts"]))
    events = [event_row(event, zone) for event in told_once(run["events"])]
    _section(out, ["event", f"at ({zone})", "data"], events)
    _section(
        out,
        ["question", "asked", "answer", "by", f"at ({zone})"],
        [
            [
                str(q["id"]),
                first_line(q["action"] or q["question"]),
                first_line(answer_words(q)) or NOTHING,
                q["answered_by"] or NOTHING,
                wall_time(q["answered_at"], zone) if q["answered_at"] else NOTHING,
            ]
            for q in run["questions"]
        ],
    )
    for question in run["questions"]:
        if question["answered_at"] is None:
            for line in question_lines(question):
                out.line(line)
    _section(
        out,
        ["message", "to", "state", "why", "body"],
        [
            [
                str(d["id"]),
                f"{d['channel']}:{d['target']}",
                d["state"],
                NOTHING if d["state"] == "sent" else first_line(d["error"], SHORT) or NOTHING,
                first_line(d["body"], SHORT),
            ]
            for d in run["deliveries"]
        ],
    )


def ending(run: Record) -> str:
    """Return the sentence about a run that has ended; of a success without its result."""
    state = run["state"]
    reason = "" if state == "succeeded" else whole_line(run["error"])
    ended = (
        reason if reason.startswith(f"{state} ") else f"{state}{': ' + reason if reason else ''}"
    )
    told = f"Run {run['id']} of {run['task']} {ended}"
    return told if told.endswith((".", "!", "?", "…")) else f"{told}."


def result_words(run: Record) -> str:
    """Return what a run came to, whole and safe to show."""
    return "" if run["result"] is None else clean(_whole(run["result"])).rstrip("\n")


def error_pairs(run: Record) -> list[tuple[str, str]]:
    """Return what a run failed with; what only an earlier attempt came to is said to be that."""
    if run["state"] == "succeeded" or not run["error"]:
        return []
    if run["state"] in FINISHED:
        return [("error", clean(run["error"]))]
    return [("earlier", f"{_earlier(run)}: {clean(run['error'])}")]


def _earlier(run: Record) -> str:
    return f"attempt {run['attempt'] - (run['state'] == 'running')}"


def going_row(run: Record) -> list[list[str]]:
    """Return the attempt that goes on, which is on record once it has ended."""
    if run["state"] != "running" or not run["attempts"]:
        return []
    return [[str(run["attempt"]), run["cause"], "running", *[NOTHING] * 3, ""]]


def checked_words(run: Record) -> str:
    """Return what is known of a run that calls itself done."""
    told = [CHECKED.get(run["check_state"]), MARKS.get(run["suppressed"])]
    return "; ".join(words for words in told if words)


def check_rows(attempts: list[Record]) -> list[list[str]]:
    """Return what the checks of attempts found, as rows of a list."""
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


def heartbeat_words(run: Record) -> str:
    """Return what was last heard of a run that goes on."""
    beat = run["heartbeat"]
    if beat is None or run["state"] != "running":
        return ""
    words = [f"{duration_text(now() - instant(beat['at']))} ago"]
    words += [beat["state"]] if beat["alive"] else ["not alive"]
    if beat["processes"] is not None:
        words.append(_processes(beat["processes"]))
    if beat["cpu_seconds"] is not None:
        words.append(f"{beat['cpu_seconds']:.1f} s of processor")
    if beat["memory_bytes"] is not None:
        words.append(f"{beat['memory_bytes'] / MIB:.0f} MiB")
    if beat["output_at"] is not None:
        words.append(f"wrote {duration_text(now() - instant(beat['output_at']))} ago")
    lines = [", ".join(words)]
    lines += [beat["last_line"]] if beat["last_line"] else []
    lines += [beat["missed_reason"]] if beat["missed_reason"] else []
    return "\n".join([*lines, *(beat["pane"] or "").rstrip().splitlines()])


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"


def ending_words(ending: Record | None) -> str:
    """Return how the processes of an attempt ended, shortly."""
    if ending is None:
        return NOTHING
    words = [str(ending["reason"]).removeprefix("lost:").replace("_", " ")]
    words += ["killed"] if ending["killed"] else []
    words += [] if ending["proven"] else ["not proven gone"]
    return ", ".join(words)


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
SHOWN = ("text", "ansi")
KINDS = set(AgentErrorKind)


def told_once(events: Iterable[Record]) -> Iterator[Record]:
    """Yield events, and a fault together with the wait that follows it as one.

    What may be tried again is held back until the next event, which says whether it is.
    """
    held: Record | None = None
    for event in events:
        if held is not None:
            retried = event["name"] == FAULT and event["data"].get("kind") == held["data"]["kind"]
            if retried and "detail" not in event["data"]:
                event = {**event, "data": {**held["data"], **event["data"]}}  # noqa: PLW2901
            else:
                yield held
        held = event if _may_be_tried_again(event) else None
        if held is None:
            yield event
    if held is not None:
        yield held


def _may_be_tried_again(event: Record) -> bool:
    data = event["data"]
    if event["name"] != FAULT or "retry" in data or data.get("kind") not in KINDS:
        return False
    return AgentErrorKind(data["kind"]).transient


def as_it_stands(events: list[Record]) -> list[Record]:
    """Return the events of a run that has ended without the words that their end would follow."""
    last = max((event["id"] for event in events if event["name"] == OUTPUT), default=0)
    return [kept for event in events for kept in _without_more(event, last)]


def _without_more(event: Record, last: int) -> Iterator[Record]:
    data = event["data"]
    if event["name"] != OUTPUT or event["id"] == last or not data["text"].endswith(MORE):
        yield event
        return
    told = {name: said.removesuffix(MORE) for name, said in data.items() if name in SHOWN}
    if told["text"]:
        yield {**event, "data": {**data, **told}}


def not_told(error: str, run: Record) -> str:
    """Return an error without what the output of its run has told; its reason stays."""
    told = {line.rstrip() for part in run["logs"] for line in part["text"].splitlines()}
    reason, *rest = error.splitlines()
    return "\n".join([reason, *(line for line in rest if line.rstrip() not in told)])
