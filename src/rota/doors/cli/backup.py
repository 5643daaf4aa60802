"""`rota backup` and `rota restore`: one file that holds everything, and everything back from it."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.show import iso
from rota.flow.backup import back_up, restore
from rota.flow.observe.telling import counted
from rota.model.backups import Backup
from rota.ports.store import Store
from rota.wiring.addresses import hidden_password
from rota.wiring.compose import unopened

File = Annotated[str, typer.Argument(metavar="FILE", help="The backup.", show_default=False)]
NOUNS = (("tasks", "task"), ("schedules", "schedule"), ("runs", "run"), ("events", "event"))


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("backup")(backup_store)
    app.command("restore")(restore_store)


def backup_store(
    context: typer.Context,
    file: File,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write everything to one file, while Rota goes on working.

    The file is consistent, checked, readable by its owner alone, and there only if it is whole.

    Example: rota backup /backups/rota-monday.zip
    """
    desk = Desk(context)

    async def work(store: Store) -> Backup:
        return await back_up(store, file, force=force)

    made = desk.look(work)
    desk.out.record(_record(made))
    desk.out.line(f"Wrote {made.path}: {_rows(made)}, {made.size:,} bytes.")
    desk.out.line(f"It holds the database as of {made.at:%Y-%m-%d %H:%M:%S} UTC.")


def restore_store(
    context: typer.Context,
    file: File,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a database that is not empty.")
    ] = False,
    catch_up: Annotated[
        bool,
        typer.Option(
            "--catch-up", help="Nobody has worked on it since the backup: go on where it was."
        ),
    ] = False,
) -> None:
    """Put a backup in the place of the database; no Rota may be working on it.

    What happened since the backup is not known any more. Slots since then are recorded as not
    caught up, messages that waited are unknown and not sent again, and runs that were going on
    are given back as lost. With --catch-up slots are left to each task's catch-up policy, and
    messages that waited are sent.

    Stopped at any moment, it leaves either the old database or the new one.

    Example: rota restore /backups/rota-monday.zip
    """
    desk = Desk(context)
    settings = desk.settings()
    store = unopened(settings)
    done = asyncio.run(restore(store, file, as_it_stood=catch_up, force=force))
    passage = done.passage
    desk.out.record(
        {
            "backup": _record(done.backup),
            "incarnation": done.incarnation,
            "slots_passed_over": passage.slots,
            "messages_in_doubt": passage.messages,
            "runs_lost": passage.running,
            "aside": done.aside,
        }
    )
    desk.out.line(f"Restored {hidden_password(settings.store)}: {_rows(done.backup)}.")
    desk.out.line(f"  as of   {done.backup.at:%Y-%m-%d %H:%M:%S} UTC")
    if done.aside is not None:
        desk.out.line(f"  before  the old database is now {done.aside}")
    if passage.slots:
        desk.out.line(f"  slots   {counted(passage.slots, 'slot')} since then not caught up")
    if passage.messages:
        messages = counted(passage.messages, "message")
        desk.out.line(f"  outbox  {messages} may have been sent since: unknown")
    if passage.running:
        desk.out.line(f"  runs    {counted(passage.running, 'run')} given back at the next start")
    desk.out.line("  next    rota verify, then rota up")


def _rows(backup: Backup) -> str:
    return ", ".join(counted(backup.rows.get(table, 0), noun) for table, noun in NOUNS)


def _record(backup: Backup) -> dict[str, object]:
    return {
        "file": backup.path,
        "store": backup.store,
        "schema": backup.schema,
        "incarnation": backup.incarnation,
        "at": iso(backup.at),
        "rows": dict(backup.rows),
        "bytes": backup.size,
    }
