"""`rota run`, `runs`, `cancel`, `retry`, `backfill`, `questions`, `answer` and `artifacts`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from rota.cli.arguments import (
    LARGEST,
    UNFINISHED,
    DryRun,
    RunOrTask,
    SpaceName,
    TaskName,
    json_value,
    optional_run,
    optional_whole_number,
    resolve_run,
    run_number,
    text_or_input,
    whole_number,
)
from rota.cli.context import AGAIN_SECONDS, CliContext, Record
from rota.cli.display import wall_time, wall_time_with_zone
from rota.cli.logs import run_of
from rota.cli.run_text import (
    ending,
    outcome_words,
    question_lines,
    result_words,
    run_columns,
    run_row,
    tell_run,
)
from rota.cli.status import look_if_idle, tell_if_idle
from rota.cli.task_options import words_of
from rota.commands.errors import FAILED, INTERRUPTED, TIMEOUT, WAITING
from rota.errors import Conflict, Invalid, RotaError, Unavailable
from rota.flow.observe.time_text import count_text, first_line, whole_line
from rota.model.runs import FINISHED
from rota.timing.durations import parse_duration

PAYLOAD = "What the run is given; - reads it, @FILE a file."


def queue_run(desk: CliContext, task: str, asked: Record, *, dry_run: bool) -> Record:
    """Queue a run of a task and return the answer."""
    if asked.get("payload") == asked.get("input") == "-":
        raise Invalid("payload", "-", "standard input is read for --input: name a file, @FILE")
    wanted = {**asked, "payload": json_value("payload", asked.get("payload"))}
    if wanted.get("input") is not None:
        wanted["input"] = text_or_input(wanted["input"])
    return desk.task("POST", task, "/run-now", wanted, dry_run=dry_run)


PATIENCE = "10m"
INTERVAL = "500"
LONGEST_INTERVAL = 60_000
BY_GATE = "by_gate"
LOOKS = 10
LOOK_SECONDS = 0.1
"""How often it is looked what became of the messages of a run that has ended."""


def run(
    context: typer.Context,
    task: Annotated[
        str | None, typer.Argument(metavar="TASK|RUN", help="A task's name, or a run's number.")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--input", metavar="TEXT", help="What the run is told; - reads it."),
    ] = None,
    payload: Annotated[str | None, typer.Option("--payload", metavar="JSON", help=PAYLOAD)] = None,
    instructions: Annotated[
        str | None,
        typer.Option(
            "--instructions", metavar="TEXT", help="Instead of a task: do this once; - reads it."
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option("--command", metavar="WORDS", help="Instead of a task: run this once."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="With the same key, at most one run.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; exit by it.")] = False,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="LENGTH", help="Wait this long [10m].")
    ] = None,
    interval_ms: Annotated[
        str | None, typer.Option("--interval-ms", metavar="N", help="Look this often [500].")
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Run a task now, also a disabled one; its schedules do not move.

    A name is a task and is run; a number is a run and is shown, or waited for with --wait. (To run
    a task by its id: rota task run ID.)

    With --wait the exit code is the outcome: 0 succeeded, 1 failed, cancelled or expired, 7 waits
    for a person, 8 not ended in time. Ctrl-C only stops the waiting; a daemon that restarts is
    waited for.

    Example: rota run report --input "only the last week" --wait
    """
    desk = CliContext(context, makes=task is None)
    waiting = _waiting(wait=wait, timeout=timeout, interval=interval_ms)
    asked = {"input": text, "payload": payload, "key": key}
    asked |= {"instructions": instructions, "command": command}
    opening = ""
    if task is not None and _is_run(task):
        stray = next((name for name, value in asked.items() if value is not None), None)
        if stray is not None:
            raise Invalid(stray, asked[stray], f"run {task} is there already: name a task instead")
        number = int(task.removeprefix("#"))
        if waiting is None:
            _show(desk, desk.call("GET", f"/v1/runs/{number}"))
            return
    else:
        done = _queued(desk, task, {**asked, "space": space}, dry_run=dry_run)
        number, opening = int(done["run"]), _there(done, task)
        if waiting is None:
            desk.out.record(done)
            desk.out.line(f"{opening}. Follow it: rota logs {number} -f")
            tell_if_idle(desk)
    if waiting is not None:
        raise typer.Exit(_wait(desk, number, *waiting, opening))


def _queued(desk: CliContext, task: str | None, asked: Record, *, dry_run: bool) -> Record:
    once = {"agent": asked.pop("instructions"), "script": asked.pop("command")}
    if [task, *once.values()].count(None) != len(once):
        advice = "name a task, or give --instructions or --command instead of one"
        raise Invalid("task", task or "", advice)
    if task is not None:
        return queue_run(desk, task, asked, dry_run=dry_run)
    if asked.pop("input") is not None:
        raise Invalid("input", "", "goes with a task: put it into --instructions")
    wanted = {**asked, **_errand(once), "payload": json_value("payload", asked["payload"])}
    return desk.call("POST", "/v1/runs", wanted, dry_run=dry_run)


def _there(done: Record, task: str | None) -> str:
    what = "" if task is None else f" of {task}"
    return f"{'Queued' if done['created'] else 'Already there:'} run {done['run']}{what}"


def _errand(once: dict[str, str | None]) -> Record:
    if once["script"] is not None:
        return {"script": {"command": words_of(once["script"])}}
    return {"agent": {"instructions": text_or_input(once["agent"] or "")}}


def _is_run(text: str) -> bool:
    digits = text.removeprefix("#")
    return digits.isascii() and digits.isdigit()


def _show(desk: CliContext, run: Record) -> None:
    desk.out.record(run)
    if not desk.out.as_json:
        tell_run(desk.out, run, desk.zone(run["space"]), why_queued(desk, run))


def _waiting(
    *, wait: bool, timeout: str | None, interval: str | None
) -> tuple[float, float] | None:
    if not wait:
        for name, value in (("timeout", timeout), ("interval-ms", interval)):
            if value is not None:
                raise Invalid(name, value, "goes with --wait")
        return None
    patience = parse_duration(timeout or PATIENCE, field="timeout").total_seconds()
    return patience, whole_number("interval-ms", interval or INTERVAL, 10, LONGEST_INTERVAL) / 1_000


def _wait(desk: CliContext, number: int, patience: float, interval: float, opening: str) -> int:
    """Look at a run until it has ended, and return the exit code of its outcome."""
    end = time.monotonic() + patience
    try:
        if opening:
            desk.out.talk(f"{opening}; waiting for its end.")
        run = _looked_at(desk, number, end if opening else 0.0)
        waiting = QueueWaitReporter(desk)
        if run["state"] in {"queued", "running"} and tell_if_idle(desk):
            waiting.told(run)
        while True:
            left = end - time.monotonic()
            if run["state"] in FINISHED or run["state"] == "waiting" or left <= 0:
                return _outcome(desk, run)
            waiting.look(run)
            time.sleep(min(interval, left))
            run = _looked_at(desk, number, end)
    except KeyboardInterrupt:
        desk.out.talk(f"Detached: run {number} goes on. Follow it: rota logs {number} -f")
        return INTERRUPTED


def _looked_at(desk: CliContext, number: int, end: float) -> Record:
    """Return a run; a daemon that restarts is waited for, as long as there is patience."""
    while True:
        try:
            return desk.call("GET", f"/v1/runs/{number}")
        except Unavailable:
            if time.monotonic() >= end:
                raise
            time.sleep(AGAIN_SECONDS)
            desk.ask_anew()


def _sent(desk: CliContext, run: Record) -> Record:
    """Return a run with what became of its messages, as far as that is known in a moment."""
    for _ in range(LOOKS):
        if not any(delivery["state"] in {"pending", "sending"} for delivery in run["deliveries"]):
            break
        time.sleep(LOOK_SECONDS)
        run = desk.call("GET", f"/v1/runs/{run['id']}")
    for delivery in run["deliveries"]:
        if delivery["state"] == "dead":
            to, why = f"{delivery['channel']}:{delivery['target']}", whole_line(delivery["error"])
            desk.out.talk(f"Not sent to {to}: {why}; see `rota run {run['id']}`.")
    return run


def _outcome(desk: CliContext, run: Record) -> int:
    run = _sent(desk, run)
    desk.out.record(run)
    state, number = run["state"], run["id"]
    name = f"Run {number} of {run['task']}"
    if state == "succeeded":
        words = result_words(run)
        if run["suppressed"] == BY_GATE:
            words = f"Its gate woke nobody{': ' + words if words else '.'}"
        desk.out.line(words or f"{name} succeeded.")
        return 0
    if state in FINISHED:
        desk.out.talk(ending(run))
        return FAILED
    if state == "waiting":
        asked = [question for question in run["questions"] if question["answered_at"] is None]
        for question in asked:
            options = f" [{'/'.join(question['options'])}]" if question["options"] else ""
            desk.out.talk(f"{name} asks: {question['question']}{options}")
            for line in (*question_lines(question), *approval_lines(question)):
                desk.out.talk(line)
        desk.out.talk(f"Answer it: rota answer {run['id']} TEXT")
        return WAITING
    idle = look_if_idle(desk)
    why = "" if idle else why_queued(desk, run)
    still = f"{name} is still {state}{why and ': '}{why}."
    desk.out.talk(f"{still} {idle or f'It goes on. Follow it: rota logs {number} -f'}")
    return TIMEOUT


MAX_LISTED = 1_000


def list_runs(
    context: typer.Context,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TASK", help="Only of this task.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state", metavar="STATE", help="queued, running, waiting, succeeded, failed …"
        ),
    ] = None,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")] = "20",
    before: Annotated[
        str | None, typer.Option("--before", metavar="RUN", help="Only runs older than this one.")
    ] = None,
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="Only of this space.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="With those whose gate woke nobody.")
    ] = False,
) -> None:
    """List runs, newest first.

    Example: rota runs --task report --state failed
    """
    desk = CliContext(context)
    wanted: Record = {
        "state": state,
        "limit": whole_number("limit", limit, 1, MAX_LISTED),
        "before": optional_whole_number("before", before, 1, LARGEST),
        "space": space,
        "suppressed": True if every else None,
    }
    try:
        wanted["task"] = None if task is None else desk.reference(task, space)
        found = desk.call("GET", "/v1/runs", wanted)
    except RotaError as fault:
        raise (fault if task is None else desk.better(fault, task, space)) from None
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone(space)
    nothing = "No runs." if found["runs"] or every else _nothing(desk, wanted)
    desk.out.table(run_columns(zone), [run_row(run, zone) for run in found["runs"]], nothing)
    if found["next"] is not None:
        desk.out.talk(f"There may be more: --before {found['next']}")


def _nothing(desk: CliContext, wanted: Record) -> str:
    """Return the sentence in place of an empty list, which may only leave the quiet out."""
    found = desk.call("GET", "/v1/runs", {**wanted, "suppressed": True})
    if not found["runs"]:
        return "No runs."
    more = "" if found["next"] is None else " or more"
    return (
        f"No runs but {count_text(len(found['runs']), 'suppressed one')}{more}: --all shows them."
    )


def cancel(
    context: typer.Context,
    which: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|TASK...", help="Numbers of runs, or a task that has one unfinished run."
        ),
    ],
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """End runs that have not begun, or ask whoever works on them to stop.

    Example: rota cancel 12 13
    """
    desk = CliContext(context)
    numbers = dict.fromkeys(resolve_run(desk, each, UNFINISHED, space) for each in which)
    *others, last = [f"/v1/runs/{number}/cancel" for number in numbers]
    done = [_cancelled(desk, desk.rehearsed("POST", path, dry_run=dry_run)) for path in others]
    done.append(_cancelled(desk, desk.call("POST", last, dry_run=dry_run)))
    desk.out.record(done[0] if len(done) == 1 else {"runs": done})
    if any(run["state"] == "running" for run in done):
        tell_if_idle(desk)


def _cancelled(desk: CliContext, run: Record) -> Record:
    if run:
        asked = "is asked to stop" if run["state"] == "running" else "is cancelled"
        desk.out.line(f"Run {run['id']} of {run['task']} {asked}.")
    return run


def retry(
    context: typer.Context,
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="The run's number, or a task: its newest failed run."),
    ],
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Queue a new run with what a finished one was given.

    Example: rota retry 12
    """
    desk = CliContext(context)
    number = None if optional_run(run) is None else run_number(run)
    if number is None:
        done = desk.task("POST", run, "/retry", {"space": space}, dry_run=dry_run)
        number = done["retried"]
    else:
        done = desk.call("POST", f"/v1/runs/{number}/retry", dry_run=dry_run)
    desk.out.record(done)
    again = done["run"]
    desk.out.line(f"Queued run {again}, as run {number} was. Follow it: rota logs {again} -f")
    tell_if_idle(desk)


def backfill(
    context: typer.Context,
    task: TaskName,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="From this time …")],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="… to this one.")] = "now",
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="Zone of both.")
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Queue a run for every slot of a span that has none; slots that ran are left alone.

    Example: rota backfill report --from 2026-11-01 --to 2026-11-08
    """
    desk = CliContext(context)
    wanted = {"start": start, "end": end, "timezone": timezone, "space": space}
    done = desk.task("POST", task, "/backfill", wanted, dry_run=dry_run)
    desk.out.record(done)
    if desk.out.as_json:
        return
    zone = timezone or desk.zone(space)
    between = (
        f"{wall_time_with_zone(done['start'], zone)} and {wall_time_with_zone(done['end'], zone)}"
    )
    desk.out.line(f"Queued {count_text(len(done['runs']), 'run')} for slots between {between}.")
    if done["runs"]:
        tell_if_idle(desk)


SILENT_SECONDS = 3.0
"""How long a run may be in the queue before it is told why."""


def why_queued(desk: CliContext, run: Record) -> str:
    """Return what a queued run waits for; empty for any other, and if nobody can tell."""
    if run["state"] != "queued":
        return ""
    try:
        told = desk.call("GET", f"/v1/runs/{run['id']}/why")["slots"]
    except RotaError:  # who may ask for work may not look, and a daemon may be restarting
        return ""
    own = [slot["sentence"] for slot in told if slot["run"] == run["id"]]
    sentence = own[0].removesuffix(f"; run {run['id']}") if own else ""
    asked_for = run["slot_at"] is None
    return str(sentence.partition("; ")[2] if asked_for else sentence)


class QueueWaitReporter:
    """Tells why a run that is waited for stays in the queue: once, and again after each attempt."""

    def __init__(self, desk: CliContext, *, silent_seconds: float = SILENT_SECONDS) -> None:
        self._desk = desk
        self._from = time.monotonic() + silent_seconds
        self._told: set[int] = set()

    def told(self, run: Record) -> None:
        """Take in that it was told already."""
        self._told.add(run["attempt"])

    def look(self, run: Record) -> None:
        """Tell why a run is in the queue, if that is due."""
        tried = run["attempt"] > 0
        if run["state"] != "queued" or run["attempt"] in self._told:
            return
        if not tried and time.monotonic() < self._from:
            return
        self.told(run)
        words = why_queued(self._desk, run)
        if words:
            self._desk.out.talk(f"Run {run['id']} waits: {words}.")


SHORT = 60


def list_open(context: typer.Context) -> None:
    """List the questions that runs wait on, oldest first.

    Example: rota questions
    """
    desk = CliContext(context)
    found = desk.call("GET", "/v1/questions")
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone()
    rows = []
    for waiting in found["questions"]:
        question, run = waiting["question"], waiting["run"]
        options = f" [{'/'.join(question['options'])}]" if question["options"] else ""
        text = first_line(question["question"], SHORT) + options
        rows.append([str(run["id"]), run["task"], wall_time(question["expires_at"], zone), text])
    desk.out.table(["run", "task", f"until ({zone})", "asks"], rows, "Nobody waits for an answer.")
    for waiting in found["questions"]:
        lines = question_lines(waiting["question"])
        for line in [f"Run {waiting['run']['id']}:", *lines] if lines else []:
            desk.out.line(line)
        for line in approval_lines(waiting["question"]):
            desk.out.line(line)


def approval_lines(question: Record) -> list[str]:
    """Return what a person must have read before they approve: the whole action, and its hash."""
    if question["kind"] != "approval":
        return []
    return [
        "",
        f"Run {question['run']} asks to approve exactly this, question {question['id']}:",
        f"  {question['action']}",
        f"  rota answer {question['run']} approve --hash {question['action_hash']}",
    ]


def answer(
    context: typer.Context,
    run: RunOrTask,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer.")],
    question: Annotated[
        str | None, typer.Option("--question", metavar="N", help="Which question [the newest].")
    ] = None,
    action_hash: Annotated[
        str | None,
        typer.Option("--hash", metavar="SHA256", help="Of the action that you approve or deny."),
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Give the question of a run its one answer; the run goes on.

    An approval is about exactly the action that `rota questions` shows: give its hash.

    Example: rota answer 12 yes
    """
    desk = CliContext(context)
    wanted = {
        "answer": text,
        "question": optional_whole_number("question", question, 1, LARGEST),
        "action_hash": action_hash,
    }
    number = resolve_run(desk, run, ("waiting",), space)
    found = desk.call("POST", f"/v1/runs/{number}/answer", wanted, dry_run=dry_run)
    desk.out.record(found)
    then = f": {found['then']}" if found["then"] else ""
    desk.out.line(f"Answered. Run {found['id']} of {found['task']} is {found['state']}{then}.")
    if found["outcome"] is not None:
        desk.out.line(f"What Rota did: {outcome_words(found['outcome'])}.")


STANDARD = "-"


def artifacts(
    context: typer.Context,
    run: Annotated[
        str, typer.Argument(metavar="RUN|TASK", help="A run's number, or a task's newest run.")
    ],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Fetch this one [list them all].")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to [its name]; - is stdout."),
    ] = None,
    space: SpaceName = None,
) -> None:
    """List the files that a run has left behind, or fetch one of them.

    A file that is there already is not overwritten.

    Example: rota artifacts 17 report.pdf -o report.pdf
    """
    desk = CliContext(context)
    number = run_of(desk, run, space)
    if name is None:
        if output is not None:
            raise Invalid("output", output, "goes with the name of an artifact")
        _list(desk, number)
        return
    parts = desk.fetch(number, name)
    if output == STANDARD:
        _copy(parts, sys.stdout.buffer)
        return
    target = Path(output or name.rpartition("/")[2])
    size = _save(parts, target)
    desk.out.record({"run": number, "name": name, "file": str(target), "size": size})
    desk.out.line(f"Fetched {target} ({size} bytes).")


def _list(desk: CliContext, number: int) -> None:
    found = desk.call("GET", f"/v1/runs/{number}/artifacts")
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone()
    rows = [
        [one["name"], str(one["size"]), wall_time(one["modified_at"], zone)]
        for one in found["artifacts"]
    ]
    desk.out.table(["artifact", "bytes", f"written ({zone})"], rows, "It has left nothing.")
    if found["left_out"]:
        desk.out.talk(f"Left out: {found['left_out']} links, pipes or names that cannot be shown.")
    if found["more"]:
        desk.out.talk("There is more than is told.")


def _save(parts: Iterator[bytes], target: Path) -> int:
    """Write what is fetched to a new file, which goes away again if not all of it comes."""
    first = next(parts, b"")  # what cannot be fetched makes no file
    try:
        held = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        raise Conflict(f"{target} is there already: choose another file with -o") from None
    except OSError as fault:
        raise Invalid("output", str(target), f"cannot be written: {fault.strerror}") from fault
    try:
        with os.fdopen(held, "wb") as file:
            file.write(first)
            return len(first) + _copy(parts, file)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _copy(parts: Iterable[bytes], file: BinaryIO) -> int:
    size = 0
    try:
        for part in parts:
            size += file.write(part)
        file.flush()
    except OSError as fault:
        raise Unavailable(f"it cannot be written: {fault.strerror}") from fault
    return size


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("run")(run)
    app.command("runs")(list_runs)
    app.command("cancel")(cancel)
    app.command("retry")(retry)
    app.command("backfill")(backfill)
    app.command("questions")(list_open)
    app.command("answer")(answer)
    app.command("artifacts")(artifacts)
