"""`rota thread`: conversations, who answers there, and an end to what goes on."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.show import wall
from rota.doors.cli.values import LARGEST, DryRun, SpaceName, maybe_whole, whole
from rota.flow.observe.telling import counted, first_line

MOST_LISTED = 1_000
SHORT = 60
NOTHING = "none"

ThreadKey = Annotated[
    str, typer.Argument(metavar="THREAD", help="The conversation, like cli:default.")
]

nouns = typer.Typer(
    help="Threads: conversations, who answers there, and what they are called.\n\n"
    "Example: rota thread list",
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="thread")


@nouns.command("list")
def list_all(
    context: typer.Context,
    before: Annotated[
        str | None, typer.Option("--before", metavar="N", help="Older than thread N.")
    ] = None,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")] = "50",
    space: SpaceName = None,
) -> None:
    """List conversations, newest first.

    Example: rota thread list
    """
    desk = Desk(context)
    wanted = {
        "before": maybe_whole("before", before, 1, LARGEST),
        "limit": whole("limit", limit, 1, MOST_LISTED),
        "space": space,
    }
    found = desk.call("GET", "/v1/threads", wanted)
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone(space)
    rows = [
        [
            one["thread"],
            one["space"],
            one["task"] or "",
            one["trigger"] or "",
            str(one["pending"]),
            wall(one["said_at"], zone),
            first_line(one["title"], SHORT),
        ]
        for one in found["threads"]
    ]
    columns = ["thread", "space", "task", "trigger", "unread", f"said ({zone})", "title"]
    desk.out.table(columns, rows, "There is no thread.")
    if found["next"] is not None:
        desk.out.talk(f"There may be more: --before {found['next']}")


@nouns.command()
def show(context: typer.Context, thread: ThreadKey, space: SpaceName = None) -> None:
    """Show a conversation: what it is called, who answers there, what nobody has read.

    Example: rota thread show cli:default
    """
    desk = Desk(context)
    found = desk.call("GET", _path(thread), {"space": space})
    desk.out.record(found)
    _tell(desk, found)


@nouns.command("register")
def register_one(
    context: typer.Context,
    thread: ThreadKey,
    title: Annotated[
        str | None, typer.Option("--title", metavar="TEXT", help="What to call it.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="Who answers there; none takes it away."),
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            "--trigger", metavar="WORD", help="Answer only what says this; none takes it away."
        ),
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Register a conversation before anybody speaks there, or change what is said of it.

    What is not given stays as it is. Only main registers for another space.

    Example: rota thread register telegram:chat:42 --title Family --task desk --trigger @rota
    """
    desk = Desk(context)
    given = {
        "title": title,
        "task": "" if task == NOTHING else task,
        "trigger": "" if trigger == NOTHING else trigger,
        "space": space,
    }
    found = desk.call("PUT", _path(thread), given, dry_run=dry_run)
    desk.out.record(found)
    _tell(desk, found)


@nouns.command()
def cancel(
    context: typer.Context, thread: ThreadKey, dry_run: DryRun = False, space: SpaceName = None
) -> None:
    """End what is queued, going on or waiting for an answer in a conversation.

    What was said and nobody has read is read with the next message.

    Example: rota thread cancel cli:default
    """
    desk = Desk(context)
    found = desk.call("POST", f"{_path(thread)}/cancel", {"space": space}, dry_run=dry_run)
    desk.out.record(found)
    ended = f"Cancelled {counted(found['cancelled'], 'run')} of {thread}"
    stopping = found["stopping"]
    desk.out.line(f"{ended}; {stopping} more will stop." if stopping else f"{ended}.")


def _tell(desk: Desk, found: Record) -> None:
    title = f" ({found['title']})" if found["title"] else ""
    who = "an agent that is asked once" if found["task"] is None else f"the task {found['task']}"
    when = "" if found["trigger"] is None else f", if it is said with {found['trigger']}"
    desk.out.line(f"{found['thread']}{title} belongs to the space {found['space']}.")
    desk.out.line(f"What is said there is answered by {who}{when}.")
    if found["pending"]:
        desk.out.line(f"Nobody has read {counted(found['pending'], 'message')} there.")


def _path(thread: str) -> str:
    return f"/v1/threads/{quote(thread, safe='')}"
