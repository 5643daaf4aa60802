"""`rota session`."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.arguments import (
    Before,
    DryRun,
    Limit,
    SpaceName,
    ThreadFilter,
    Yes,
    optional_run,
    page,
    run_number,
)
from rota.cli.context import CliContext, Record
from rota.cli.display import Column, compact, wall_time
from rota.flow.observe.time_text import count_text, first_line

SHORT = 60
Agent = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="Only the sessions of an agent")
]
Session = Annotated[
    str,
    typer.Argument(
        metavar="SESSION", help="Number of the session, or a thread for its current ones"
    ),
]
Number = Annotated[str, typer.Argument(metavar="SESSION", help="Number of the session")]
Title = Annotated[
    str | None, typer.Option("--title", metavar="TEXT", help="Title of the archived session")
]


def _place(session: Record) -> str:
    return str(session["thread"] or f"task {session['task']}")


def _state(session: Record) -> str:
    return "current" if session["archived_at"] is None else "archived"


COLUMNS = (
    Column("session", "id"),
    Column("thread", _place),
    Column("agent", "agent"),
    Column("state", _state),
    Column("runs", "runs"),
    Column("last used", "used_at", is_time=True),
    Column("title", lambda session: first_line(session["title"], SHORT)),
)

session_app = typer.Typer(
    help="Manage sessions: the conversation state that an agent keeps from run to run.\n\n"
    "Example: rota session list --thread cli:default",
    rich_markup_mode=None,
)


@session_app.command("list")
def list_sessions(
    context: typer.Context,
    thread: ThreadFilter = None,
    agent: Agent = None,
    archived: Annotated[
        bool | None,
        typer.Option("--archived/--current", help="List only archived or current ones"),
    ] = None,
    before: Before = None,
    limit: Limit = "50",
    space: SpaceName = None,
) -> None:
    """List sessions, newest first.

    Example: rota session list --current
    """
    cli = CliContext(context)
    query = {
        **page(limit, before),
        "thread": thread,
        "agent": agent,
        "archived": archived,
        "space": space,
    }
    found = cli.call("GET", "/v1/sessions", query)
    cli.show_list(found, "sessions", COLUMNS, "No sessions found.", space=space)


@session_app.command()
def show(
    context: typer.Context, session: Number, before: Before = None, limit: Limit = "20"
) -> None:
    """Show a session with its prompts and results, newest first.

    Example: rota session show 3
    """
    cli = CliContext(context)
    path = f"/v1/sessions/{run_number(session, 'session')}"
    found = cli.call("GET", path, page(limit, before))
    cli.out.record(found)
    cli.out.line(f"Session {found['id']} of {found['agent']} in {_place(found)} ({_state(found)}).")
    _show_exchanges(cli, found["history"], cli.zone(found["space"]))
    if found["next"] is not None:
        cli.out.talk(f"To see more, use --before {found['next']}")


@session_app.command()
def archive(
    context: typer.Context,
    session: Session,
    agent: Agent = None,
    title: Title = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Archive a session: the next run starts a new one, and this one can be resumed.

    Example: rota session archive cli:default --title "Tax of 2026"
    """
    cli = CliContext(context)
    body = {**_selection(session), "agent": agent, "title": title, "space": space}
    found = cli.call("POST", "/v1/sessions/current/archive", body, dry_run=dry_run)
    cli.out.record(found)
    cli.out.line(f"Archived {_sessions_text(found)}.")


@session_app.command()
def clear(
    context: typer.Context,
    session: Session,
    agent: Agent = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Delete a session and its history permanently: the next run starts a new one.

    Example: rota session clear 3
    """
    cli = CliContext(context)
    cli.out.confirm(f"Delete session {session} permanently?", yes=yes or dry_run)
    body = {**_selection(session), "agent": agent, "space": space}
    found = cli.call("POST", "/v1/sessions/current/clear", body, dry_run=dry_run)
    cli.out.record(found)
    cli.out.line(f"Deleted {_sessions_text(found)}.")


@session_app.command()
def resume(
    context: typer.Context, session: Number, title: Title = None, dry_run: DryRun = False
) -> None:
    """Resume a session for the next run of its thread; the current one is archived.

    Example: rota session resume 3
    """
    cli = CliContext(context)
    path = f"/v1/sessions/{run_number(session, 'session')}/resume"
    found = cli.call("POST", path, {"title": title}, dry_run=dry_run)
    cli.out.record(found)
    cli.out.line(
        f"The next run of {found['agent']} in {_place(found)} continues session {found['id']}."
    )


@session_app.command()
def search(
    context: typer.Context,
    words: Annotated[str, typer.Argument(metavar="WORDS", help="Words to search for")],
    thread: ThreadFilter = None,
    limit: Limit = "20",
    space: SpaceName = None,
) -> None:
    """Search recent prompts and results of agents, newest first.

    Example: rota session search invoice
    """
    cli = CliContext(context)
    query = {"words": words, "thread": thread, **page(limit), "space": space}
    found = cli.call("GET", "/v1/sessions/search", query)
    cli.out.record(found)
    _show_exchanges(cli, found["found"], cli.zone(space))
    if not found["found"]:
        cli.out.line("No matches found.")


def _selection(session: str) -> Record:
    number = optional_run(session)
    return {"thread": session} if number is None else {"session": number}


def _sessions_text(found: Record) -> str:
    numbers = ", ".join(str(one["id"]) for one in found["sessions"])
    return f"{count_text(len(found['sessions']), 'session')}{numbers and ': '}{numbers}"


def _show_exchanges(cli: CliContext, exchanges: list[Record], zone: str) -> None:
    for one in exchanges:
        head = f"session {one['session']}, run {one['run']} of {one['task'] or 'a task'}"
        cli.out.line(f"\n{wall_time(one['at'], zone)}  {head}: {one['state'] or 'deleted'}")
        for line in one["prompt"].splitlines():
            cli.out.line(f"  > {line}")
        answer = one["result"] if isinstance(one["result"], str) else compact(one["result"])
        for line in (one["error"] or answer).splitlines():
            cli.out.line(f"  {line}")


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(session_app, name="session")
