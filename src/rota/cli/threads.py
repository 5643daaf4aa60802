"""`rota thread`, `say` and `messages`."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from rota.cli.arguments import (
    LARGEST,
    DryRun,
    SpaceName,
    optional_whole_number,
    text_or_input,
    whole_number,
)
from rota.cli.context import CliContext, Record
from rota.cli.display import wall_time
from rota.cli.status import tell_if_idle
from rota.errors import Invalid
from rota.flow.observe.time_text import count_text, first_line
from rota.model.threads import MAX_FILES, MAX_FILES_BYTES

MAX_LISTED = 1_000
SHORT = 60
NOTHING = "none"

ThreadKey = Annotated[
    str, typer.Argument(metavar="THREAD", help="The conversation, like cli:default.")
]

thread_app = typer.Typer(
    help="Threads: conversations, who answers there, and what they are called.\n\n"
    "Example: rota thread list",
    rich_markup_mode=None,
)


@thread_app.command("list")
def list_threads(
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
    desk = CliContext(context)
    wanted = {
        "before": optional_whole_number("before", before, 1, LARGEST),
        "limit": whole_number("limit", limit, 1, MAX_LISTED),
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
            wall_time(one["last_message_at"], zone),
            first_line(one["title"], SHORT),
        ]
        for one in found["threads"]
    ]
    columns = ["thread", "space", "task", "trigger", "unread", f"said ({zone})", "title"]
    desk.out.table(columns, rows, "There is no thread.")
    if found["next"] is not None:
        desk.out.talk(f"There may be more: --before {found['next']}")


@thread_app.command()
def show(context: typer.Context, thread: ThreadKey, space: SpaceName = None) -> None:
    """Show a conversation: what it is called, who answers there, what nobody has read.

    Example: rota thread show cli:default
    """
    desk = CliContext(context)
    found = desk.call("GET", _thread_path(thread), {"space": space})
    desk.out.record(found)
    _tell(desk, found)


@thread_app.command("register")
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
    desk = CliContext(context)
    given = {
        "title": title,
        "task": "" if task == NOTHING else task,
        "trigger": "" if trigger == NOTHING else trigger,
        "space": space,
    }
    found = desk.call("PUT", _thread_path(thread), given, dry_run=dry_run)
    desk.out.record(found)
    _tell(desk, found)


@thread_app.command()
def cancel(
    context: typer.Context, thread: ThreadKey, dry_run: DryRun = False, space: SpaceName = None
) -> None:
    """End what is queued, going on or waiting for an answer in a conversation.

    What was said and nobody has read is read with the next message.

    Example: rota thread cancel cli:default
    """
    desk = CliContext(context)
    found = desk.call("POST", f"{_thread_path(thread)}/cancel", {"space": space}, dry_run=dry_run)
    desk.out.record(found)
    ended = f"Cancelled {count_text(found['cancelled'], 'run')} of {thread}"
    stopping = found["stopping"]
    desk.out.line(f"{ended}; {stopping} more will stop." if stopping else f"{ended}.")


def _tell(desk: CliContext, found: Record) -> None:
    title = f" ({found['title']})" if found["title"] else ""
    who = "an agent that is asked once" if found["task"] is None else f"the task {found['task']}"
    when = "" if found["trigger"] is None else f", if it is said with {found['trigger']}"
    desk.out.line(f"{found['thread']}{title} belongs to the space {found['space']}.")
    desk.out.line(f"What is said there is answered by {who}{when}.")
    if found["pending"]:
        desk.out.line(f"Nobody has read {count_text(found['pending'], 'message')} there.")


def _thread_path(thread: str) -> str:
    return f"/v1/threads/{quote(thread, safe='')}"


MessageThread = Annotated[
    str, typer.Argument(metavar="THREAD", help="The conversation, like cli:default.")
]


def say(
    context: typer.Context,
    thread: MessageThread,
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
    desk = CliContext(context)
    said: Record = {"text": text_or_input(text), "sender": sender, "agent": agent, "space": space}
    if files:
        said["files"] = files_at(files)
    if follow_up:
        said["delivery_mode"] = "followUp"
    found = desk.call("POST", _messages_path(thread), said, dry_run=dry_run)
    desk.out.record(found)
    number, reader = found["id"], found["reader_run"]
    if reader is None:
        desk.out.line(f"Message {number} asks for nobody: it is read with the next that does.")
    else:
        who = "" if follow_up else ", or who listens before"
        desk.out.line(f"Message {number} is for run {reader}{who}.")
        tell_if_idle(desk)


def list_messages(
    context: typer.Context,
    thread: MessageThread,
    before: Annotated[
        str | None, typer.Option("--before", metavar="N", help="Older than message N.")
    ] = None,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")] = "20",
    space: SpaceName = None,
) -> None:
    """List what was said in a thread, newest first, and which run has read it.

    Example: rota messages cli:default
    """
    desk = CliContext(context)
    wanted = {
        "before": optional_whole_number("before", before, 1, LARGEST),
        "limit": whole_number("limit", limit, 1, MAX_LISTED),
        "space": space,
    }
    found = desk.call("GET", _messages_path(thread), wanted)
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone(space)
    carries = any(message["files"] for message in found["messages"])
    rows = [
        [
            str(message["id"]),
            wall_time(message["at"], zone),
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
    return "" if message["reader_run"] is None else f"({message['reader_run']})"


def _files(message: Record) -> str:
    """Return what is known of the files of a message."""
    return ", ".join(
        f"{file['name']} ({file['type']}, {file['size']:,} bytes)" for file in message["files"]
    )


def _messages_path(thread: str) -> str:
    return f"/v1/threads/{quote(thread, safe='')}/messages"


LOOK = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Waits for nobody: what turns out to be no plain file is not read."""


def files_at(paths: Sequence[str]) -> list[dict[str, str]]:
    """Return files as they are sent, or refuse what cannot be."""
    if len(paths) > MAX_FILES:
        raise Invalid("file", len(paths), f"send at most {MAX_FILES} with a message")
    sent, left = [], MAX_FILES_BYTES
    for path in paths:
        content = _read(path, left)
        left -= len(content)
        data = base64.b64encode(content).decode()
        sent.append({"name": Path(path).name, "data": data})
    return sent


def _read(path: str, most: int) -> bytes:
    try:
        file = os.open(path, LOOK)
    except (OSError, ValueError) as fault:
        why = (fault.strerror if isinstance(fault, OSError) else None) or str(fault)
        raise Invalid("file", path, f"cannot be read: {why.lower()}") from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Invalid("file", path, "name a plain file: no folder, pipe or device")
        with os.fdopen(file, "rb", closefd=False) as reading:
            content = reading.read(most + 1)
    except OSError as fault:
        why = (fault.strerror or str(fault)).lower()
        raise Invalid("file", path, f"cannot be read: {why}") from None
    finally:
        os.close(file)
    if len(content) > most:
        advice = f"the files of a message have {MAX_FILES_BYTES >> 20} MiB together at most"
        raise Invalid("file", path, advice)
    return content


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(thread_app, name="thread")
    app.command("say")(say)
    app.command("messages")(list_messages)
