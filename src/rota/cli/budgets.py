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

MAX_AMOUNT = 10**12
COLUMNS = ["scope", "per", "tokens", "cost", "turns", "tool calls", "time"]
ROWS = {"used": "used", "reserved": "reserved"}
"""Further rows of a daily budget, by their fields."""

Task = Annotated[
    str | None,
    typer.Argument(metavar="TASK", help="Name or id of the task [default: the space]"),
]

budget_app = typer.Typer(
    help="Manage budgets of runs, tasks and spaces.\n\n"
    "A run that reaches its budget is stopped and asks how to proceed; a daily budget that is used "
    "up delays new runs.\n\n"
    "Example: rota budget set report --per run --tokens 200000 --cost 1.50",
    rich_markup_mode=None,
)


@budget_app.command("set")
def set_budget(
    context: typer.Context,
    task: Task = None,
    per: Annotated[
        str,
        typer.Option("--per", metavar="PERIOD", help="run or day; budgets of spaces are for a day"),
    ] = "day",
    tokens: Annotated[
        str | None, typer.Option("--tokens", metavar="N", help="Maximum input and output tokens")
    ] = None,
    cost: Annotated[
        str | None, typer.Option("--cost", metavar="USD", help="Maximum cost, such as 1.50")
    ] = None,
    turns: Annotated[
        str | None, typer.Option("--turns", metavar="N", help="Maximum turns of the model")
    ] = None,
    tool_calls: Annotated[
        str | None, typer.Option("--tool-calls", metavar="N", help="Maximum tool calls")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="LENGTH", help="Maximum run time, such as 2h")
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Set a budget, replacing the earlier one; without amounts, remove it.

    Example: rota budget set --space main --cost 20
    """
    cli = CliContext(context)
    amounts: Record = {
        "tokens": optional_whole_number("tokens", tokens, 1, MAX_AMOUNT),
        "cost_usd": _read_cost(cost),
        "turns": optional_whole_number("turns", turns, 1, MAX_AMOUNT),
        "tool_calls": optional_whole_number("tool-calls", tool_calls, 1, MAX_AMOUNT),
        "time": time,
    }
    if task is None:
        if per != "day":
            raise Invalid("per", per, "budgets of spaces are for a day: name a task")
        found = cli.call("PUT", _space_path(cli, space), amounts, dry_run=dry_run)
    else:
        body = {**amounts, "per": per, "space": space}
        found = cli.task("PUT", task, "/budget", body, dry_run=dry_run)
    _show(cli, found)


@budget_app.command()
def show(context: typer.Context, task: Task = None, space: SpaceName = None) -> None:
    """Show budgets, their usage today, and the average usage of a run.

    Example: rota budget show report
    """
    cli = CliContext(context)
    if task is None:
        found = cli.call("GET", _space_path(cli, space))
    else:
        found = cli.task("GET", task, "/budget", {"space": space})
    _show(cli, found)


def _space_path(cli: CliContext, space: str | None) -> str:
    return f"/v1/spaces/{space or cli.home_space}/budget"


def _show(cli: CliContext, found: Record) -> None:
    cli.out.record(found)
    if cli.out.as_json:
        return
    rows = []
    for budget in found["budgets"]:
        rows.append([budget["scope"], budget["per"], *_cells(budget["caps"])])
        rows += [
            [f"  {label}", found["day"], *_cells(budget[name])]
            for name, label in ROWS.items()
            if budget[name] is not None
        ]
    cli.out.table(COLUMNS, rows, "No budgets found.")
    cli.out.line(f"average usage: {forecast_text(found['forecast'])}")


def _read_cost(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text.strip().removeprefix("$"))
    except ValueError:
        raise Invalid("cost", text, "give US dollars, such as 1.50") from None


def forecast_text(forecast: Record | None) -> str:
    """Return the average and maximum usage of a run."""
    if forecast is None:
        return "not known yet"
    usual, most, runs = forecast["median"], forecast["max"], forecast["runs"]
    tokens, cost, _, _, time = _cells(usual)
    if not most["tokens"]:  # only the time is known
        return f"{_time_text(usual)}, maximum {_time_text(most)} in {runs} runs"
    known = ", ".join(part for part in (f"{tokens} tokens", cost, time) if part != NOTHING)
    return f"{known}; maximum {_cells(most)[0]} tokens in {runs} runs"


def _cells(amounts: Record) -> list[str]:
    """Return amounts as cells of a row: tokens, cost, turns, tool calls, time."""
    cost, seconds = amounts["cost_usd"], amounts["seconds"]
    return [
        _number_text(amounts["tokens"]),
        NOTHING if cost is None else f"${cost:,.2f}",
        _number_text(amounts["turns"]),
        _number_text(amounts["tool_calls"]),
        NOTHING if seconds is None else duration_text(timedelta(seconds=seconds)),
    ]


def _time_text(amounts: Record) -> str:
    return _cells(amounts)[-1] if amounts["seconds"] else "less than 1 s"


def _number_text(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(budget_app, name="budget")
