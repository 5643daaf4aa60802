"""`rota run`: run a task now, and wait for its end if wanted; a number shows that run."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from rota.doors.cli.desk import AGAIN_SECONDS, Desk, Record
from rota.doors.cli.idle_words import look_if_idle, tell_if_idle
from rota.doors.cli.questions import approval_lines
from rota.doors.cli.queued import Waiting, why_queued
from rota.doors.cli.run_now import PAYLOAD, queue_run
from rota.doors.cli.run_words import ending, question_lines, result_words, tell_run
from rota.doors.cli.task_options import words_of
from rota.doors.cli.values import DryRun, SpaceName, json_value, text_or_input, whole
from rota.doors.kit.faults import FAILED, INTERRUPTED, TIMEOUT, WAITING
from rota.errors import Invalid, Unavailable
from rota.flow.observe.telling import whole_line
from rota.model.states import FINISHED
from rota.timing.durations import parse_duration

PATIENCE = "10m"
INTERVAL = "500"
LONGEST_INTERVAL = 60_000
QUIET = "quiet"
LOOKS = 10
LOOK_SECONDS = 0.1
"""How often it is looked what became of the messages of a run that has ended."""


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("run")(run)


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
    desk = Desk(context, makes=task is None)
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


def _queued(desk: Desk, task: str | None, asked: Record, *, dry_run: bool) -> Record:
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


def _show(desk: Desk, run: Record) -> None:
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
    return patience, whole("interval-ms", interval or INTERVAL, 10, LONGEST_INTERVAL) / 1_000


def _wait(desk: Desk, number: int, patience: float, interval: float, opening: str) -> int:
    """Look at a run until it has ended, and return the exit code of its outcome."""
    end = time.monotonic() + patience
    try:
        if opening:
            desk.out.talk(f"{opening}; waiting for its end.")
        run = _looked_at(desk, number, end if opening else 0.0)
        waiting = Waiting(desk)
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


def _looked_at(desk: Desk, number: int, end: float) -> Record:
    """Return a run; a daemon that restarts is waited for, as long as there is patience."""
    while True:
        try:
            return desk.call("GET", f"/v1/runs/{number}")
        except Unavailable:
            if time.monotonic() >= end:
                raise
            time.sleep(AGAIN_SECONDS)
            desk.ask_anew()


def _sent(desk: Desk, run: Record) -> Record:
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


def _outcome(desk: Desk, run: Record) -> int:
    run = _sent(desk, run)
    desk.out.record(run)
    state, number = run["state"], run["id"]
    name = f"Run {number} of {run['task']}"
    if state == "succeeded":
        words = result_words(run)
        if run["mark"] == QUIET:
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
