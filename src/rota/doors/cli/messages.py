"""`rota say` and `rota messages`: what is said in a thread, and who has read it."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.idle_words import tell_if_idle
from rota.doors.cli.sending import files_at
from rota.doors.cli.show import wall
from rota.doors.cli.values import LARGEST, DryRun, SpaceName, maybe_whole, text_or_input, whole
from rota.flow.observe.telling import first_line

MOST_LISTED = 1_000
SHORT = 60

ThreadKey = Annotated[
    str, typer.Argument(metavar="THREAD", help="The conversation, like cli:default.")
]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("say")(say)
    app.command("messages")(list_all)


def say(
    context: typer.Context,
    thread: ThreadKey,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What to say; - reads it, a file needs none.")
    ] = "",
    files: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="PATH", help="Send a file with it; repeatable."),
    ] = None,
    sender: Annotated[
        str | None, typer.Option("--sender", metavar="NAME", help="Who says it [you].")
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME", help="Who answers, if no task does there."),
    ] = None,
    follow_up: Annotated[
        bool, typer.Option("--follow-up", help="Leave it to the next run, whoever listens.")
    ] = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Say something in a thread.

    A run that goes on there and listens is told at once; otherwise the next run reads it: of the
    task that answers there, or of an agent that is asked once.

    Who reads it finds files in its mailbox; 10 MiB at most go with a message.

    Example: rota say cli:default "And the invoices?"

    Example: rota say cli:default "Is this one paid?" --file invoice.pdf
    """
    desk = Desk(context)
    said: Record = {"text": text_or_input(text), "sender": sender, "agent": agent, "space": space}
    if files:
        said["files"] = files_at(files)
    if follow_up:
        said["delivery_mode"] = "followUp"
    found = desk.call("POST", _path(thread), said, dry_run=dry_run)
    desk.out.record(found)
    number, reader = found["id"], found["reader"]
    if reader is None:
        desk.out.line(f"Message {number} asks for nobody: it is read with the next that does.")
    else:
        who = "" if follow_up else ", or who listens before"
        desk.out.line(f"Message {number} is for run {reader}{who}.")
        tell_if_idle(desk)


def list_all(
    context: typer.Context,
    thread: ThreadKey,
    before: Annotated[
        str | None, typer.Option("--before", metavar="N", help="Older than message N.")
    ] = None,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")] = "20",
    space: SpaceName = None,
) -> None:
    """List what was said in a thread, newest first, and which run has read it.

    Example: rota messages cli:default
    """
    desk = Desk(context)
    wanted = {
        "before": maybe_whole("before", before, 1, LARGEST),
        "limit": whole("limit", limit, 1, MOST_LISTED),
        "space": space,
    }
    found = desk.call("GET", _path(thread), wanted)
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone(space)
    carries = any(message["files"] for message in found["messages"])
    rows = [
        [
            str(message["id"]),
            wall(message["at"], zone),
            message["sender"],
            message["state"],
            _reader(message),
            first_line(message["text"], SHORT),
            *([_files(message)] if carries else ()),
        ]
        for message in found["messages"]
    ]
    columns = ["message", f"at ({zone})", "sender", "state", "run", "text"]
    columns += ["files"] if carries else []
    desk.out.table(columns, rows, f"Nothing was said in {thread}.")
    if found["next"] is not None:
        desk.out.talk(f"There may be more: --before {found['next']}")


def _reader(message: Record) -> str:
    """Return the run that has read a message, or in brackets the one that is to."""
    if message["run"] is not None:
        return str(message["run"])
    return "" if message["reader"] is None else f"({message['reader']})"


def _files(message: Record) -> str:
    """Return what is known of the files of a message."""
    return ", ".join(
        f"{file['name']} ({file['type']}, {file['size']:,} bytes)" for file in message["files"]
    )


def _path(thread: str) -> str:
    return f"/v1/threads/{quote(thread, safe='')}/messages"
