"""`rota budget`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from rota.cli.arguments import DryRun, SpaceName, optional_whole_number
from rota.cli.context import CliContext, Record
from rota.cli.display import NOTHING
from rota.errors import Invalid
from rota.flow.observe.time_text import duration_text

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
    desk = CliContext(context)
    wanted: Record = {
        "tokens": optional_whole_number("tokens", tokens, 1, MOST),
        "cost_usd": _money(cost),
        "turns": optional_whole_number("turns", turns, 1, MOST),
        "tool_calls": optional_whole_number("tool-calls", tool_calls, 1, MOST),
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
    desk = CliContext(context)
    if task is None:
        found = desk.call("GET", f"/v1/spaces/{space or desk.home_space}/budget")
    else:
        found = desk.task("GET", task, "/budget", {"space": space})
    _tell(desk, found)


def _tell(desk: CliContext, found: Record) -> None:
    desk.out.record(found)
    if desk.out.as_json:
        return
    rows = []
    for budget in found["budgets"]:
        rows.append([budget["scope"], budget["per"], *cells(budget["caps"])])
        rows += [
            [f"  {name}", found["day"], *cells(budget[name])]
            for name in ("used", "reserved")
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


def forecast_words(forecast: Record | None) -> str:
    """Return what a run of a task will probably use."""
    if forecast is None:
        return "unknown until one has told what it used"
    usual, most, runs = forecast["median"], forecast["max"], forecast["runs"]
    tokens, cost, _, _, time = cells(usual)
    if not most["tokens"]:  # only its time is known
        return f"about {_time(usual)}; at most {_time(most)} in {runs} runs"
    known = [f"{tokens} tokens", cost, time]
    words = ", ".join(part for part in known if part != NOTHING)
    return f"about {words}; at most {cells(most)[0]} tokens in {runs} runs"


def cells(amounts: Record) -> list[str]:
    """Return amounts as cells of a row: tokens, cost, turns, tool calls, time."""
    cost, seconds = amounts["cost_usd"], amounts["seconds"]
    return [
        _number(amounts["tokens"]),
        NOTHING if cost is None else f"${cost:,.2f}",
        _number(amounts["turns"]),
        _number(amounts["tool_calls"]),
        NOTHING if seconds is None else duration_text(timedelta(seconds=seconds)),
    ]


def _time(amounts: Record) -> str:
    return cells(amounts)[-1] if amounts["seconds"] else "less than a second"


def _number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="budget")
