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

from rota.cli.arguments import Before, DryRun, Limit, SpaceName, page, text_or_input
from rota.cli.context import CliContext, Record
from rota.cli.display import Column
from rota.cli.status import warn_if_idle
from rota.errors import Invalid
from rota.flow.observe.time_text import count_text, first_line
from rota.model.threads import MAX_FILES, MAX_FILES_BYTES

SHORT = 60
NONE = "none"
"""The word that removes a setting of a thread."""

Thread = Annotated[
    str, typer.Argument(metavar="THREAD", help="Key of the thread, such as cli:default")
]
THREAD_COLUMNS = (
    Column("thread", "thread"),
    Column("space", "space"),
    Column("task", "task"),
    Column("trigger", "trigger"),
    Column("unread", "pending"),
    Column("last message", "last_message_at", is_time=True),
    Column("title", lambda thread: first_line(thread["title"], SHORT)),
)

thread_app = typer.Typer(
    help="Manage threads: conversations, and the tasks that answer in them.\n\n"
    "Example: rota thread list",
    rich_markup_mode=None,
)


@thread_app.command("list")
def list_threads(
    context: typer.Context, before: Before = None, limit: Limit = "50", space: SpaceName = None
) -> None:
    """List threads, newest first.

    Example: rota thread list
    """
    cli = CliContext(context)
    found = cli.call("GET", "/v1/threads", {**page(limit, before), "space": space})
    cli.show_list(found, "threads", THREAD_COLUMNS, "No threads found.", space=space)


@thread_app.command()
def show(context: typer.Context, thread: Thread, space: SpaceName = None) -> None:
    """Show a thread: its title, who answers, and the number of unread messages.

    Example: rota thread show cli:default
    """
    cli = CliContext(context)
    _show(cli, cli.call("GET", _path(thread), {"space": space}))


@thread_app.command("register")
def register_thread(
    context: typer.Context,
    thread: Thread,
    title: Annotated[
        str | None, typer.Option("--title", metavar="TEXT", help="Title of the thread")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="Task that answers; none removes it"),
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            "--trigger", metavar="WORD", help="Answer only messages with a word; none removes it"
        ),
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Register a thread before its first message, or change its settings.

    Settings that are not given do not change. Only main can register threads of other spaces.

    Example: rota thread register telegram:chat:42 --title Family --task desk --trigger @rota
    """
    cli = CliContext(context)
    body = {
        "title": title,
        "task": "" if task == NONE else task,
        "trigger": "" if trigger == NONE else trigger,
        "space": space,
    }
    _show(cli, cli.call("PUT", _path(thread), body, dry_run=dry_run))


@thread_app.command()
def cancel(
    context: typer.Context, thread: Thread, dry_run: DryRun = False, space: SpaceName = None
) -> None:
    """Cancel the queued, running and waiting runs of a thread.

    Unread messages are read together with the next one.

    Example: rota thread cancel cli:default
    """
    cli = CliContext(context)
    found = cli.call("POST", f"{_path(thread)}/cancel", {"space": space}, dry_run=dry_run)
    cli.out.record(found)
    stopping = f"; {found['stopping']} more are stopping" if found["stopping"] else ""
    cli.out.line(f"Cancelled {count_text(found['cancelled'], 'run')} of {thread}{stopping}.")


def _show(cli: CliContext, thread: Record) -> None:
    cli.out.record(thread)
    cli.out.pairs(
        [
            ("thread", thread["thread"]),
            ("title", thread["title"]),
            ("space", thread["space"]),
            ("answered by", thread["task"] or "an agent, in a one-off run"),
            ("trigger", thread["trigger"] or ""),
            ("unread", str(thread["pending"] or "")),
        ]
    )


def _path(thread: str) -> str:
    return f"/v1/threads/{quote(thread, safe='')}"


def say(
    context: typer.Context,
    thread: Thread,
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT", help="Text of the message; - reads standard input; optional with --file"
        ),
    ] = "",
    files: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="PATH", help="Attach a file, repeatable"),
    ] = None,
    sender: Annotated[
        str | None, typer.Option("--sender", metavar="NAME", help="Author [default: you]")
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", metavar="NAME", help="Agent that answers if the thread has no task"
        ),
    ] = None,
    follow_up: Annotated[
        bool, typer.Option("--follow-up", help="Leave the message to the next run")
    ] = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Send a message to a thread.

    A running run of the thread gets it now if it accepts messages. Otherwise the next run reads it:
    one of the task that answers in the thread, or a one-off run of an agent.

    The run finds attached files in its mailbox, at most 10 MiB for a message.

    Example: rota say cli:default "And the invoices?"

    Example: rota say cli:default "Is this one paid?" --file invoice.pdf
    """
    cli = CliContext(context)
    body: Record = {"text": text_or_input(text), "sender": sender, "agent": agent, "space": space}
    if files:
        body["files"] = read_files(files)
    if follow_up:
        body["delivery_mode"] = "followUp"
    message = cli.call("POST", f"{_path(thread)}/messages", body, dry_run=dry_run)
    cli.out.record(message)
    number, reader = message["id"], message["reader_run"]
    if reader is None:
        cli.out.line(f"Sent message {number}. It needs no answer, and the next run reads it.")
    else:
        earlier = "" if follow_up else ", or a running run before that"
        cli.out.line(f"Sent message {number}. Run {reader} reads it{earlier}.")
        warn_if_idle(cli)


def list_messages(
    context: typer.Context,
    thread: Thread,
    before: Before = None,
    limit: Limit = "20",
    space: SpaceName = None,
) -> None:
    """List the messages of a thread, newest first, with the runs that read them.

    Example: rota messages cli:default
    """
    cli = CliContext(context)
    query = {**page(limit, before), "space": space}
    found = cli.call("GET", f"{_path(thread)}/messages", query)
    has_files = any(message["files"] for message in found["messages"])
    columns = (
        Column("message", "id"),
        Column("at", "at", is_time=True),
        Column("sender", "sender"),
        Column("state", "state"),
        Column("run", _reader),
        Column("text", lambda message: first_line(message["text"], SHORT)),
        *([Column("files", _files)] if has_files else []),
    )
    cli.show_list(found, "messages", columns, f"No messages found in {thread}.", space=space)


def _reader(message: Record) -> str:
    """Return the run that has read a message, or in brackets the one that will."""
    if message["run"] is not None:
        return str(message["run"])
    return "" if message["reader_run"] is None else f"({message['reader_run']})"


def _files(message: Record) -> str:
    """Return the files of a message with their types and sizes."""
    return ", ".join(
        f"{file['name']} ({file['type']}, {file['size']:,} bytes)" for file in message["files"]
    )


OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Opens without waiting: what is not a regular file is not read."""


def read_files(paths: Sequence[str]) -> list[dict[str, str]]:
    """Return files as they are sent, or refuse those that cannot be."""
    if len(paths) > MAX_FILES:
        raise Invalid("file", len(paths), f"attach at most {MAX_FILES} files to a message")
    sent, left = [], MAX_FILES_BYTES
    for path in paths:
        content = _read(path, left)
        left -= len(content)
        data = base64.b64encode(content).decode()
        sent.append({"name": Path(path).name, "data": data})
    return sent


def _read(path: str, limit: int) -> bytes:
    try:
        file = os.open(path, OPEN_FLAGS)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise Invalid("file", path, f"cannot be read: {why.lower()}") from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Invalid("file", path, "must be a regular file")
        with os.fdopen(file, "rb", closefd=False) as reading:
            content = reading.read(limit + 1)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Invalid("file", path, f"cannot be read: {why}") from None
    finally:
        os.close(file)
    if len(content) > limit:
        advice = f"attach at most {MAX_FILES_BYTES >> 20} MiB to a message"
        raise Invalid("file", path, advice)
    return content


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(thread_app, name="thread")
    app.command("say")(say)
    app.command("messages")(list_messages)
