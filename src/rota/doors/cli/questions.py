"""`rota questions` and `rota answer`: runs that wait for a person."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.run_words import outcome_words, question_lines
from rota.doors.cli.show import wall
from rota.doors.cli.values import LARGEST, DryRun, SpaceName, maybe_whole
from rota.doors.cli.which_run import RunOrTask, one_run
from rota.flow.observe.telling import first_line

SHORT = 60


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("questions")(list_open)
    app.command("answer")(answer)


def list_open(context: typer.Context) -> None:
    """List the questions that runs wait on, oldest first.

    Example: rota questions
    """
    desk = Desk(context)
    found = desk.call("GET", "/v1/runs/waiting")
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone()
    rows = []
    for waiting in found["waiting"]:
        question, run = waiting["question"], waiting["run"]
        options = f" [{'/'.join(question['options'])}]" if question["options"] else ""
        text = first_line(question["question"], SHORT) + options
        rows.append([str(run["id"]), run["task"], wall(question["expires_at"], zone), text])
    desk.out.table(["run", "task", f"until ({zone})", "asks"], rows, "Nobody waits for an answer.")
    for waiting in found["waiting"]:
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
    desk = Desk(context)
    wanted = {
        "answer": text,
        "question": maybe_whole("question", question, 1, LARGEST),
        "action_hash": action_hash,
    }
    number = one_run(desk, run, ("waiting",), space)
    found = desk.call("POST", f"/v1/runs/{number}/answer", wanted, dry_run=dry_run)
    desk.out.record(found)
    then = f": {found['then']}" if found["then"] else ""
    desk.out.line(f"Answered. Run {found['id']} of {found['task']} is {found['state']}{then}.")
    if found["outcome"] is not None:
        desk.out.line(f"What Rota did: {outcome_words(found['outcome'])}.")
