"""`rota budget`: how much runs may use, and what today has used."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.doors.cli.budget_words import cells, forecast_words
from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.values import DryRun, SpaceName, maybe_whole
from rota.errors import Invalid

MOST = 10**12
COLUMNS = ["of", "per", "tokens", "cost", "turns", "tool calls", "time"]

Task = Annotated[
    str | None, typer.Argument(metavar="TASK", help="The task; without one, the space.")
]

nouns = typer.Typer(
    help="Budgets: what each run of a task, or a task or a space in a day, may use.\n\n"
    "At its budget a run is ended politely and asks; a spent day holds new starts back.\n\n"
    "Example: rota budget set report --per run --tokens 200000 --cost 1.50",
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="budget")


@nouns.command("set")
def change(
    context: typer.Context,
    task: Task = None,
    per: Annotated[
        str, typer.Option("--per", metavar="WHAT", help="run or day; a space has days.")
    ] = "day",
    tokens: Annotated[
        str | None, typer.Option("--tokens", metavar="N", help="Tokens, in and out.")
    ] = None,
    cost: Annotated[
        str | None, typer.Option("--cost", metavar="USD", help="Money, '1.50'.")
    ] = None,
    turns: Annotated[
        str | None, typer.Option("--turns", metavar="N", help="Answers of the model.")
    ] = None,
    tool_calls: Annotated[
        str | None, typer.Option("--tool-calls", metavar="N", help="Uses of tools.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="LENGTH", help="Time at work, '2h'.")
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Set a budget in the place of the one that stands; without any amount it is taken away.

    Example: rota budget set --space main --cost 20
    """
    desk = Desk(context)
    wanted: Record = {
        "tokens": maybe_whole("tokens", tokens, 1, MOST),
        "cost_usd": _money(cost),
        "turns": maybe_whole("turns", turns, 1, MOST),
        "tool_calls": maybe_whole("tool-calls", tool_calls, 1, MOST),
        "time": time,
    }
    if task is None:
        if per != "day":
            raise Invalid("per", per, "a space has a budget for each day: name a task")
        path = f"/v1/spaces/{space or desk.home_space}/budget"
        found = desk.call("PUT", path, wanted, dry_run=dry_run)
    else:
        said = {**wanted, "per": per, "space": space}
        found = desk.task("PUT", task, "/budget", said, dry_run=dry_run)
    _tell(desk, found)


@nouns.command()
def show(context: typer.Context, task: Task = None, space: SpaceName = None) -> None:
    """Show budgets, what today has used of them, and what a run usually uses.

    Example: rota budget show report
    """
    desk = Desk(context)
    if task is None:
        found = desk.call("GET", f"/v1/spaces/{space or desk.home_space}/budget")
    else:
        found = desk.task("GET", task, "/budget", {"space": space})
    _tell(desk, found)


def _tell(desk: Desk, found: Record) -> None:
    desk.out.record(found)
    if desk.out.as_json:
        return
    rows = []
    for budget in found["budgets"]:
        rows.append([budget["scope"], budget["per"], *cells(budget["caps"])])
        rows += [
            [f"  {name}", found["day"], *cells(budget[name])]
            for name in ("used", "aside")
            if budget[name] is not None
        ]
    desk.out.table(COLUMNS, rows, "No budgets.")
    desk.out.line(f"A run: {forecast_words(found['forecast'])}")


def _money(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text.strip().removeprefix("$"))
    except ValueError:
        raise Invalid("cost", text, "give US dollars, like 1.50") from None
