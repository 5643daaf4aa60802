"""`rota session`."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.arguments import (
    LARGEST,
    DryRun,
    SpaceName,
    Yes,
    optional_run,
    optional_whole_number,
    run_number,
    whole_number,
)
from rota.cli.context import CliContext, Record
from rota.cli.display import compact, wall_time
from rota.flow.observe.time_text import count_text, first_line

MAX_LISTED = 1_000
SHORT = 60

Limit = Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")]
Before = Annotated[str | None, typer.Option("--before", metavar="N", help="Older than N.")]
Thread = Annotated[
    str | None, typer.Option("--thread", metavar="KEY", help="Only of this conversation.")
]
Agent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Only of this agent.")]
Meant = Annotated[
    str, typer.Argument(metavar="SESSION", help="Its number, or a thread: what is going on there.")
]
Number = Annotated[str, typer.Argument(metavar="SESSION", help="The session's number.")]
Title = Annotated[str | None, typer.Option("--title", metavar="TEXT", help="What to call it.")]

nouns = typer.Typer(
    help="Sessions: conversations of agents, which the runs of a thread go on in.\n\n"
    "Example: rota session list --thread cli:default",
    rich_markup_mode=None,
)


@nouns.command("list")
def list_all(
    context: typer.Context,
    thread: Thread = None,
    agent: Agent = None,
    archived: Annotated[
        bool | None,
        typer.Option("--archived/--current", help="Only those put aside, or not [both]."),
    ] = None,
    before: Before = None,
    limit: Limit = "50",
    space: SpaceName = None,
) -> None:
    """List sessions, newest first.

    Example: rota session list --current
    """
    desk = CliContext(context)
    wanted = {
        "thread": thread,
        "agent": agent,
        "archived": archived,
        "before": optional_whole_number("before", before, 1, LARGEST),
        "limit": whole_number("limit", limit, 1, MAX_LISTED),
        "space": space,
    }
    found = desk.call("GET", "/v1/sessions", wanted)
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone(space)
    rows = [
        [
            str(one["id"]),
            one["thread"] or f"task {one['task']}",
            one["agent"],
            "current" if one["archived_at"] is None else "archived",
            str(one["runs"]),
            wall_time(one["used_at"], zone),
            first_line(one["title"], SHORT),
        ]
        for one in found["sessions"]
    ]
    columns = ["session", "thread", "agent", "state", "runs", f"used ({zone})", "title"]
    desk.out.table(columns, rows, "There is no session.")
    if found["next"] is not None:
        desk.out.talk(f"There may be more: --before {found['next']}")


@nouns.command()
def show(
    context: typer.Context, session: Number, before: Before = None, limit: Limit = "20"
) -> None:
    """Show a session: what was said in it and what it came to, newest first.

    Example: rota session show 3
    """
    desk = CliContext(context)
    wanted = {
        "before": optional_whole_number("before", before, 1, LARGEST),
        "limit": whole_number("limit", limit, 1, MAX_LISTED),
    }
    found = desk.call("GET", f"/v1/sessions/{run_number(session, 'session')}", wanted)
    desk.out.record(found)
    state = "current" if found["archived_at"] is None else "archived"
    where = found["thread"] or f"task {found['task']}"
    desk.out.line(f"Session {found['id']} of {found['agent']} in {where} ({state}).")
    _tell(desk, found["history"], desk.zone(found["space"]))
    if found["next"] is not None:
        desk.out.talk(f"There may be more: --before {found['next']}")


@nouns.command()
def archive(
    context: typer.Context,
    session: Meant,
    agent: Agent = None,
    title: Title = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Put a session aside: the next run begins a new one, and this one can be resumed.

    Example: rota session archive cli:default --title "Tax of 2026"
    """
    desk = CliContext(context)
    wanted = {**_meant(session), "agent": agent, "title": title, "space": space}
    found = desk.call("POST", "/v1/sessions/current/archive", wanted, dry_run=dry_run)
    desk.out.record(found)
    desk.out.line(f"Archived {count_text(len(found['sessions']), 'session')}{_numbers(found)}.")


@nouns.command()
def clear(
    context: typer.Context,
    session: Meant,
    agent: Agent = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Forget a session and what was said in it for good: the next run begins a new one.

    Example: rota session clear 3
    """
    desk = CliContext(context)
    desk.out.confirm(f"Forget session {session} for good?", yes=yes or dry_run)
    wanted = {**_meant(session), "agent": agent, "space": space}
    found = desk.call("POST", "/v1/sessions/current/clear", wanted, dry_run=dry_run)
    desk.out.record(found)
    desk.out.line(f"Forgot {count_text(len(found['sessions']), 'session')}{_numbers(found)}.")


@nouns.command()
def resume(
    context: typer.Context, session: Number, title: Title = None, dry_run: DryRun = False
) -> None:
    """Let the next run of its thread go on in a session; the one in its place is archived.

    Example: rota session resume 3
    """
    desk = CliContext(context)
    path = f"/v1/sessions/{run_number(session, 'session')}/resume"
    found = desk.call("POST", path, {"title": title}, dry_run=dry_run)
    desk.out.record(found)
    where = found["thread"] or f"the task {found['task']}"
    desk.out.line(f"The next run of {found['agent']} in {where} goes on in session {found['id']}.")


@nouns.command()
def search(
    context: typer.Context,
    words: Annotated[str, typer.Argument(metavar="WORDS", help="What was said or answered.")],
    thread: Thread = None,
    limit: Limit = "20",
    space: SpaceName = None,
) -> None:
    """Find words in what agents were told and have answered of late, newest first.

    Example: rota session search invoice
    """
    desk = CliContext(context)
    most = whole_number("limit", limit, 1, MAX_LISTED)
    wanted = {"words": words, "thread": thread, "limit": most, "space": space}
    found = desk.call("GET", "/v1/sessions/search", wanted)
    desk.out.record(found)
    _tell(desk, found["found"], desk.zone(space))
    if not found["found"]:
        desk.out.line("Nothing was found.")


def _meant(session: str) -> Record:
    number = optional_run(session)
    return {"thread": session} if number is None else {"session": number}


def _numbers(found: Record) -> str:
    numbers = ", ".join(str(one["id"]) for one in found["sessions"])
    return f": {numbers}" if numbers else ""


def _tell(desk: CliContext, exchanges: list[Record], zone: str) -> None:
    for one in exchanges:
        head = f"session {one['session']}, run {one['run']} of {one['task'] or 'a task'}"
        desk.out.line(f"\n{wall_time(one['at'], zone)}  {head}: {one['state'] or 'gone'}")
        for line in one["prompt"].splitlines():
            desk.out.line(f"  > {line}")
        answer = one["result"] if isinstance(one["result"], str) else compact(one["result"])
        for line in (one["error"] or answer).splitlines():
            desk.out.line(f"  {line}")


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="session")
