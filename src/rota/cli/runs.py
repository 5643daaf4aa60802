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
    MAX_ID,
    UNFINISHED,
    Before,
    DryRun,
    Limit,
    Payload,
    RunOrNewest,
    RunOrTask,
    SpaceFilter,
    SpaceName,
    TaskFilter,
    TaskName,
    Timezone,
    json_value,
    optional_run,
    optional_whole_number,
    page,
    resolve_run,
    run_number,
    text_or_input,
    whole_number,
)
from rota.cli.context import AGAIN_SECONDS, CliContext, Record
from rota.cli.display import Column, wall_time, wall_time_with_zone
from rota.cli.logs import find_newest_run
from rota.cli.run_text import (
    RUN_COLUMNS,
    ending_text,
    outcome_text,
    question_lines,
    result_text,
    show_run,
)
from rota.cli.status import find_idle_reason, warn_if_idle
from rota.cli.task_options import words_of
from rota.commands.errors import FAILED, INTERRUPTED, TIMEOUT, WAITING
from rota.errors import Conflict, Invalid, RotaError, Unavailable
from rota.flow.observe.time_text import count_text, first_line, whole_line
from rota.model.runs import FINISHED
from rota.timing.durations import parse_duration

TIMEOUT_DEFAULT = "10m"
INTERVAL_DEFAULT = "500"
MAX_INTERVAL = 60_000
BY_GATE = "by_gate"
POLLS = 10
POLL_SECONDS = 0.1
"""How often the deliveries of an ended run are checked before they are reported."""


def queue_run(cli: CliContext, task: str, body: Record, *, dry_run: bool) -> Record:
    """Queue a run of a task and return the response."""
    if body.get("payload") == body.get("input") == "-":
        raise Invalid("payload", "-", "standard input is used by --input: use @FILE")
    body = {**body, "payload": json_value("payload", body.get("payload"))}
    if body.get("input") is not None:
        body["input"] = text_or_input(body["input"])
    return cli.task("POST", task, "/run-now", body, dry_run=dry_run)


def run(
    context: typer.Context,
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK|RUN", help="Name of a task to run, or number of a run to show"
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--input", metavar="TEXT", help="Input as text; - reads standard input"),
    ] = None,
    payload: Payload = None,
    instructions: Annotated[
        str | None,
        typer.Option(
            "--instructions",
            metavar="TEXT",
            help="Instructions for an agent, instead of a task; - reads standard input",
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option("--command", metavar="COMMAND", help="Program to run, instead of a task"),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Idempotency key: queue at most one run with it"),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end of the run")] = False,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="LENGTH", help="Maximum time to wait [default: 10m]"),
    ] = None,
    interval_ms: Annotated[
        str | None,
        typer.Option(
            "--interval-ms", metavar="N", help="Milliseconds between polls [default: 500]"
        ),
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Run a task now, even if it is disabled; its schedules do not change.

    The name of a task runs it; the number of a run shows that run, or waits for it with --wait. (To
    run a task by its id: rota task run ID.)

    With --wait the exit code is the outcome: 0 succeeded; 1 failed, cancelled or expired; 7 waits
    for a person; 8 not ended in time. Ctrl-C stops the waiting, not the run. The waiting continues
    if the daemon restarts.

    Example: rota run report --input "only the last week" --wait
    """
    cli = CliContext(context, creates_home=task is None)
    waiting = _wait_options(wait=wait, timeout=timeout, interval=interval_ms)
    given = {"input": text, "payload": payload, "key": key}
    given |= {"instructions": instructions, "command": command}
    opening = ""
    number = None if task is None else optional_run(task)
    if number is not None:
        stray = next((name for name, value in given.items() if value is not None), None)
        if stray is not None:
            raise Invalid(
                stray, given[stray], f"{task} is the number of a run: name a task instead"
            )
        if waiting is None:
            _show(cli, cli.call("GET", f"/v1/runs/{number}"))
            return
    else:
        queued = _queue(cli, task, {**given, "space": space}, dry_run=dry_run)
        number, opening = int(queued["run"]), _queued_text(queued, task)
        if waiting is None:
            cli.out.record(queued)
            cli.out.line(f"{opening}. To follow it: rota logs {number} -f")
            warn_if_idle(cli)
    if waiting is not None:
        raise typer.Exit(_wait(cli, number, *waiting, opening))


def _queue(cli: CliContext, task: str | None, given: Record, *, dry_run: bool) -> Record:
    agent, script = given.pop("instructions"), given.pop("command")
    if [task, agent, script].count(None) != 2:  # noqa: PLR2004 - exactly one of three
        advice = "give exactly one of a task, --instructions and --command"
        raise Invalid("task", task or "", advice)
    if task is not None:
        return queue_run(cli, task, given, dry_run=dry_run)
    if given.pop("input") is not None:
        raise Invalid("input", "", "needs a task: use --instructions")
    if script is not None:
        work: Record = {"script": {"command": words_of(script)}}
    else:
        work = {"agent": {"instructions": text_or_input(agent)}}
    body = {**given, **work, "payload": json_value("payload", given["payload"])}
    return cli.call("POST", "/v1/runs", body, dry_run=dry_run)


def _queued_text(queued: Record, task: str | None) -> str:
    run = f"run {queued['run']}{'' if task is None else f' of {task}'}"
    return f"Queued {run}" if queued["created"] else f"Found existing {run}"


def _show(cli: CliContext, run: Record) -> None:
    cli.out.record(run)
    if not cli.out.as_json:
        show_run(cli.out, run, cli.zone(run["space"]), find_wait_reason(cli, run))


def _wait_options(
    *, wait: bool, timeout: str | None, interval: str | None
) -> tuple[float, float] | None:
    """Return the maximum wait and the poll interval in seconds; None without --wait."""
    if not wait:
        for name, value in (("timeout", timeout), ("interval-ms", interval)):
            if value is not None:
                raise Invalid(name, value, "needs --wait")
        return None
    seconds = parse_duration(timeout or TIMEOUT_DEFAULT, field="timeout").total_seconds()
    millis = whole_number("interval-ms", interval or INTERVAL_DEFAULT, 10, MAX_INTERVAL)
    return seconds, millis / 1_000


def _wait(cli: CliContext, number: int, timeout: float, interval: float, opening: str) -> int:
    """Poll a run until it has ended, and return the exit code of its outcome."""
    end = time.monotonic() + timeout
    try:
        if opening:
            cli.out.talk(f"{opening}. Waiting for its end.")
        run = _poll(cli, number, end if opening else 0.0)
        reporter = QueueWaitReporter(cli)
        if run["state"] in {"queued", "running"} and warn_if_idle(cli):
            reporter.mark_reported(run)
        while True:
            left = end - time.monotonic()
            if run["state"] in FINISHED or run["state"] == "waiting" or left <= 0:
                return _report_outcome(cli, run)
            reporter.report(run)
            time.sleep(min(interval, left))
            run = _poll(cli, number, end)
    except KeyboardInterrupt:
        cli.out.talk(
            f"Stopped waiting; run {number} continues. To follow it: rota logs {number} -f"
        )
        return INTERRUPTED


def _poll(cli: CliContext, number: int, end: float) -> Record:
    """Return a run; retries until a time while the daemon is unavailable."""
    while True:
        try:
            return cli.call("GET", f"/v1/runs/{number}")
        except Unavailable:
            if time.monotonic() >= end:
                raise
            time.sleep(AGAIN_SECONDS)
            cli.reconnect()


def _report_deliveries(cli: CliContext, run: Record) -> Record:
    """Write which deliveries of a run failed, and return the run, after a short wait for them."""
    for _ in range(POLLS):
        if not any(delivery["state"] in {"pending", "sending"} for delivery in run["deliveries"]):
            break
        time.sleep(POLL_SECONDS)
        run = cli.call("GET", f"/v1/runs/{run['id']}")
    for delivery in run["deliveries"]:
        if delivery["state"] == "dead":
            to, why = f"{delivery['channel']}:{delivery['target']}", whole_line(delivery["error"])
            cli.out.talk(f"Not delivered to {to}: {why}; see `rota run {run['id']}`.")
    return run


def _report_outcome(cli: CliContext, run: Record) -> int:
    run = _report_deliveries(cli, run)
    cli.out.record(run)
    state, number = run["state"], run["id"]
    name = f"Run {number} of {run['task']}"
    if state == "succeeded":
        text = result_text(run)
        if run["suppressed"] == BY_GATE:
            text = f"The gate found no work{': ' + text if text else '.'}"
        cli.out.line(text or f"{name} succeeded.")
        return 0
    if state in FINISHED:
        cli.out.talk(ending_text(run))
        return FAILED
    if state == "waiting":
        _report_questions(cli, run, name)
        return WAITING
    idle = find_idle_reason(cli)
    why = "" if idle else find_wait_reason(cli, run)
    still = f"{name} is still {state}{why and ': '}{why}."
    cli.out.talk(f"{still} {idle or f'To follow it: rota logs {number} -f'}")
    return TIMEOUT


def _report_questions(cli: CliContext, run: Record, name: str) -> None:
    for question in run["questions"]:
        if question["answered_at"] is None:
            cli.out.talk(f"{name} asks: {question['question']}{_options_text(question)}")
            for line in (*question_lines(question), *approval_lines(question)):
                cli.out.talk(line)
    cli.out.talk(f"To answer: rota answer {run['id']} TEXT")


def _options_text(question: Record) -> str:
    return f" [{'/'.join(question['options'])}]" if question["options"] else ""


def list_runs(
    context: typer.Context,
    task: TaskFilter = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state", metavar="STATE", help="List only those in a state, such as running or failed"
        ),
    ] = None,
    limit: Limit = "20",
    before: Before = None,
    space: SpaceFilter = None,
    every: Annotated[
        bool, typer.Option("--all", help="Include runs whose gate found no work")
    ] = False,
) -> None:
    """List runs, newest first.

    Example: rota runs --task report --state failed
    """
    cli = CliContext(context)
    query: Record = {
        **page(limit, before),
        "state": state,
        "space": space,
        "suppressed": True if every else None,
    }
    try:
        query["task"] = None if task is None else cli.reference(task, space)
        found = cli.call("GET", "/v1/runs", query)
    except RotaError as error:
        raise (error if task is None else cli.with_suggestion(error, task, space)) from None
    empty = "" if found["runs"] or cli.out.as_json else _no_runs_text(cli, query)
    cli.show_list(found, "runs", RUN_COLUMNS, empty, space=space)


def _no_runs_text(cli: CliContext, query: Record) -> str:
    """Return the sentence for an empty list, which may have left out quiet runs."""
    quiet = (
        []
        if query["suppressed"]
        else cli.call("GET", "/v1/runs", {**query, "suppressed": True})["runs"]
    )
    if not quiet:
        return "No runs found."
    return f"No runs found. {count_text(len(quiet), 'suppressed run')} not shown: use --all"


def cancel(
    context: typer.Context,
    which: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|TASK...", help="Numbers of runs, or a task with one unfinished run"
        ),
    ],
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Cancel runs; running ones are asked to stop.

    Example: rota cancel 12 13
    """
    cli = CliContext(context)
    numbers = dict.fromkeys(resolve_run(cli, each, UNFINISHED, space) for each in which)
    *others, last = [f"/v1/runs/{number}/cancel" for number in numbers]
    runs = [_report_cancel(cli, cli.try_call("POST", path, dry_run=dry_run)) for path in others]
    runs.append(_report_cancel(cli, cli.call("POST", last, dry_run=dry_run)))
    cli.out.record(runs[0] if len(runs) == 1 else {"runs": runs})
    if any(run["state"] == "running" for run in runs):
        warn_if_idle(cli)


def _report_cancel(cli: CliContext, run: Record) -> Record:
    if run:
        done = "is stopping" if run["state"] == "running" else "is cancelled"
        cli.out.line(f"Run {run['id']} of {run['task']} {done}.")
    return run


def retry(
    context: typer.Context,
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Number of the run, or a task for its newest failed run"
        ),
    ],
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Queue a new run with the input of a finished one.

    Example: rota retry 12
    """
    cli = CliContext(context)
    number = None if optional_run(run) is None else run_number(run)
    if number is None:
        queued = cli.task("POST", run, "/retry", {"space": space}, dry_run=dry_run)
        number = queued["retried"]
    else:
        queued = cli.call("POST", f"/v1/runs/{number}/retry", dry_run=dry_run)
    cli.out.record(queued)
    new = queued["run"]
    cli.out.line(f"Queued run {new}, a retry of run {number}. To follow it: rota logs {new} -f")
    warn_if_idle(cli)


def backfill(
    context: typer.Context,
    task: TaskName,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="Begin of the period")],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="End of the period")] = "now",
    timezone: Timezone = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Queue a run for every slot of a period that has none.

    Example: rota backfill report --from 2026-11-01 --to 2026-11-08
    """
    cli = CliContext(context)
    body = {"start": start, "end": end, "timezone": timezone, "space": space}
    queued = cli.task("POST", task, "/backfill", body, dry_run=dry_run)
    cli.out.record(queued)
    if cli.out.as_json:
        return
    zone = timezone or cli.zone(space)
    first, last = (wall_time_with_zone(queued[name], zone) for name in ("start", "end"))
    cli.out.line(
        f"Queued {count_text(len(queued['runs']), 'run')} for slots from {first} to {last}."
    )
    if queued["runs"]:
        warn_if_idle(cli)


REPORT_SECONDS = 3.0
"""How long a run is in the queue before the reason is reported."""


def find_wait_reason(cli: CliContext, run: Record) -> str:
    """Return what a queued run waits for; empty for other runs, and if it is not known."""
    if run["state"] != "queued":
        return ""
    try:
        slots = cli.call("GET", f"/v1/runs/{run['id']}/why")["slots"]
    except RotaError:  # not every caller may read it, and a daemon may be restarting
        return ""
    own = [slot["sentence"] for slot in slots if slot["run"] == run["id"]]
    sentence = own[0].removesuffix(f"; run {run['id']}") if own else ""
    was_requested = run["slot_at"] is None
    return str(sentence.partition("; ")[2] if was_requested else sentence)


class QueueWaitReporter:
    """Reports why a run stays in the queue: once, and again after each attempt."""

    def __init__(self, cli: CliContext, *, delay_seconds: float = REPORT_SECONDS) -> None:
        self._cli = cli
        self._from = time.monotonic() + delay_seconds
        self._reported: set[int] = set()

    def mark_reported(self, run: Record) -> None:
        """Do not report the reason for the present attempt again."""
        self._reported.add(run["attempt"])

    def report(self, run: Record) -> None:
        """Write why a run is in the queue, if that is due."""
        if run["state"] != "queued" or run["attempt"] in self._reported:
            return
        if run["attempt"] == 0 and time.monotonic() < self._from:
            return
        self.mark_reported(run)
        reason = find_wait_reason(self._cli, run)
        if reason:
            self._cli.out.talk(f"Run {run['id']} is queued: {reason}.")


SHORT = 60


def list_questions(context: typer.Context) -> None:
    """List open questions of runs, oldest first.

    Example: rota questions
    """
    cli = CliContext(context)
    found = cli.call("GET", "/v1/questions")
    cli.out.record(found)
    if cli.out.as_json:
        return
    zone = cli.zone()
    rows = []
    for waiting in found["questions"]:
        question, run = waiting["question"], waiting["run"]
        text = first_line(question["question"], SHORT) + _options_text(question)
        rows.append([str(run["id"]), run["task"], wall_time(question["expires_at"], zone), text])
    cli.out.table(
        ["run", "task", f"expires ({zone})", "question"], rows, "No open questions found."
    )
    for waiting in found["questions"]:
        lines = question_lines(waiting["question"])
        for line in [f"Run {waiting['run']['id']}:", *lines] if lines else []:
            cli.out.line(line)
        for line in approval_lines(waiting["question"]):
            cli.out.line(line)


def approval_lines(question: Record) -> list[str]:
    """Return the complete action of an approval, and the command that approves it."""
    if question["kind"] != "approval":
        return []
    return [
        "",
        f"Run {question['run']} requests approval of this action, question {question['id']}:",
        f"  {question['action']}",
        f"  rota answer {question['run']} approve --hash {question['action_hash']}",
    ]


def answer(
    context: typer.Context,
    run: RunOrTask,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Answer")],
    question: Annotated[
        str | None,
        typer.Option(
            "--question", metavar="N", help="Number of the question [default: the newest]"
        ),
    ] = None,
    action_hash: Annotated[
        str | None,
        typer.Option("--hash", metavar="SHA256", help="Hash of the action to approve or deny"),
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Answer the question of a run, which then continues.

    An approval needs the hash of the action, which `rota questions` shows.

    Example: rota answer 12 yes
    """
    cli = CliContext(context)
    body = {
        "answer": text,
        "question": optional_whole_number("question", question, 1, MAX_ID),
        "action_hash": action_hash,
    }
    number = resolve_run(cli, run, ("waiting",), space)
    found = cli.call("POST", f"/v1/runs/{number}/answer", body, dry_run=dry_run)
    cli.out.record(found)
    then = f": {found['then']}" if found["then"] else ""
    cli.out.line(f"Answered. Run {found['id']} of {found['task']} is {found['state']}{then}.")
    if found["outcome"] is not None:
        cli.out.line(f"Result of the action: {outcome_text(found['outcome'])}.")


STANDARD = "-"
ARTIFACT_COLUMNS = (
    Column("artifact", "name"),
    Column("bytes", "size"),
    Column("modified", "modified_at", is_time=True),
)


def artifacts(
    context: typer.Context,
    run: RunOrNewest,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Artifact to download [default: list all]"),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File to write, - for standard output [default: NAME]",
        ),
    ] = None,
    space: SpaceName = None,
) -> None:
    """List the artifacts of a run, or download one.

    Existing files are not overwritten.

    Example: rota artifacts 17 report.pdf -o report.pdf
    """
    cli = CliContext(context)
    number = find_newest_run(cli, run, space)
    if name is None:
        if output is not None:
            raise Invalid("output", output, "needs the name of an artifact")
        _list_artifacts(cli, number)
        return
    parts = cli.fetch(number, name)
    if output == STANDARD:
        _copy(parts, sys.stdout.buffer)
        return
    target = Path(output or name.rpartition("/")[2])
    size = _save(parts, target)
    cli.out.record({"run": number, "name": name, "file": str(target), "size": size})
    cli.out.line(f"Downloaded {target} ({size} bytes).")


def _list_artifacts(cli: CliContext, number: int) -> None:
    found = cli.call("GET", f"/v1/runs/{number}/artifacts")
    cli.show_list(found, "artifacts", ARTIFACT_COLUMNS, f"No artifacts of run {number} found.")
    if found["left_out"]:
        cli.out.talk(f"Not shown: {found['left_out']} links, pipes or unprintable names.")
    if found["more"]:
        cli.out.talk("The list is incomplete: the run has too many artifacts.")


def _save(parts: Iterator[bytes], target: Path) -> int:
    """Write a download to a new file, and remove the file if the download fails."""
    first = next(parts, b"")  # before the file is created
    try:
        held = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        raise Conflict(f"{target} exists: choose another file with -o") from None
    except OSError as error:
        raise Invalid("output", str(target), f"cannot be written: {error.strerror}") from error
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
    except OSError as error:
        raise Unavailable(f"cannot write the artifact: {error.strerror}") from error
    return size


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("run")(run)
    app.command("runs")(list_runs)
    app.command("cancel")(cancel)
    app.command("retry")(retry)
    app.command("backfill")(backfill)
    app.command("questions")(list_questions)
    app.command("answer")(answer)
    app.command("artifacts")(artifacts)
