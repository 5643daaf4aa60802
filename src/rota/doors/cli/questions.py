"""`rota questions` and `rota answer`: runs that wait for a person."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.show import wall
from rota.doors.cli.values import run_number
from rota.doors.cli.wire import question_record, run_record
from rota.flow.define import runs
from rota.flow.observe.runs import open_questions
from rota.flow.observe.telling import first_line
from rota.model.runs import Question, Run
from rota.ports.store import Store
from rota.rules.permission import LOCAL


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("questions")(list_open)
    app.command("answer")(answer)


def list_open(context: typer.Context) -> None:
    """List the questions that runs wait on, oldest first.

    Example: rota questions
    """
    desk = Desk(context)

    async def work(store: Store) -> tuple[list[tuple[Question, Run]], str]:
        zone = (await store.find_space("main")).timezone
        return await open_questions(store, LOCAL), zone

    found, zone = desk.ask(work)
    desk.out.record([{**question_record(q), "task": run.task} for q, run in found])
    rows = [
        [
            str(q.id),
            run.task,
            str(run.id),
            wall(q.expires_at, zone),
            first_line(q.question, 60) + (f" [{'/'.join(q.options)}]" if q.options else ""),
        ]
        for q, run in found
    ]
    columns = ["question", "task", "run", f"until ({zone})", "text"]
    desk.out.table(columns, rows, "Nobody waits for an answer.")


def answer(
    context: typer.Context,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question's number.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer.")],
) -> None:
    """Give a question its one answer; the run goes on.

    Example: rota answer 3 yes
    """
    desk = Desk(context)
    number = run_number(question, "question")
    run = desk.ask(lambda store: runs.answer_question(store, LOCAL, number, text))
    desk.out.record(run_record(run))
    desk.out.line(f"Answered. Run {run.id} of {run.task} is {run.state}.")
