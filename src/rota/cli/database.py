"""`rota backup`, `restore`, `verify` and `sql`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from rota.app.addresses import hidden_password
from rota.app.composition import closed_store
from rota.cli.arguments import text_or_input
from rota.cli.context import CliContext
from rota.cli.display import NOTHING, compact, iso
from rota.flow.maintain import back_up, restore
from rota.flow.observe.time_text import count_text
from rota.flow.observe.verification import MOST_TOLD, verify
from rota.model.backups import Backup
from rota.model.verification import MEANINGS, Verification
from rota.store.store import Store

File = Annotated[str, typer.Argument(metavar="FILE", help="The backup.", show_default=False)]
BACKUP_NOUNS = (("tasks", "task"), ("schedules", "schedule"), ("runs", "run"), ("events", "event"))


def backup_store(
    context: typer.Context,
    file: File,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write everything to one file, while Rota goes on working.

    The file is consistent, checked, readable by its owner alone, and there only if it is whole.

    Example: rota backup /backups/rota-monday.zip
    """
    desk = CliContext(context)

    async def work(store: Store) -> Backup:
        return await back_up(store.database, file, force=force)

    made = desk.look(work)
    desk.out.record(_backup_record(made))
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
    desk = CliContext(context)
    settings = desk.settings()
    store = closed_store(settings)
    done = asyncio.run(restore(store, file, as_it_stood=catch_up, force=force))
    passage = done.passage
    desk.out.record(
        {
            "backup": _backup_record(done.backup),
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
        desk.out.line(f"  slots   {count_text(passage.slots, 'slot')} since then not caught up")
    if passage.messages:
        messages = count_text(passage.messages, "message")
        desk.out.line(f"  outbox  {messages} may have been sent since: unknown")
    if passage.running:
        desk.out.line(
            f"  runs    {count_text(passage.running, 'run')} given back at the next start"
        )
    desk.out.line("  next    rota verify, then rota up")


def _rows(backup: Backup) -> str:
    return ", ".join(count_text(backup.rows.get(table, 0), noun) for table, noun in BACKUP_NOUNS)


def _backup_record(backup: Backup) -> dict[str, object]:
    return {
        "file": backup.path,
        "store": backup.store,
        "schema": backup.schema,
        "incarnation": backup.incarnation,
        "at": iso(backup.at),
        "rows": dict(backup.rows),
        "bytes": backup.size,
    }


INDENT = 7
HOLDS, BROKEN = "✓", "✗"
VERIFIED_NOUNS = (("runs", "run"), ("schedules", "schedule"), ("deliveries", "message"))


def verify_store(context: typer.Context) -> None:
    """Check that everything on record holds: slots, runs, attempts, events, messages, limits.

    Reads one consistent view of the database, also while Rota works on it, and changes nothing.
    Exits with 0 if everything holds, with 1 if something does not, with 2 if it could not look.

    Example: rota verify --json
    """
    desk = CliContext(context)

    async def work(store: Store) -> Verification:
        return await verify(store)

    found = desk.look(work)
    desk.out.record(_verification_record(found))
    for line in _lines(found):
        desk.out.words(line, INDENT)
    if not found.clean:
        raise typer.Exit(1)


def _lines(found: Verification) -> list[str]:
    seen = ", ".join(count_text(found.counts.get(key, 0), noun) for key, noun in VERIFIED_NOUNS)
    lines = [f"Looked at {seen}, as of {found.at:%Y-%m-%d %H:%M:%S} UTC."]
    width = max(len(f"{check.looked_at:,}") for check in found.checks)
    for check in found.checks:
        mark = BROKEN if check.violated else HOLDS
        sentence = MEANINGS[check.invariant].sentence
        lines.append(f"{mark} {check.invariant:<3}  {check.looked_at:>{width},}  {sentence}")
    lines += [f"Not looked at: {what}." for what in found.unseen]
    if found.clean:
        return [*lines, "Everything holds."]
    broken = [check for check in found.checks if check.violated]
    lines.append(f"{count_text(sum(c.violated for c in broken), 'violation')}:")
    for check in broken:
        told = [v for v in found.violations if v.invariant is check.invariant]
        lines += [f"  {v.invariant:<3}  {v.where}: {v.what}" for v in told]
        if check.violated > len(told):
            lines.append(f"       and {check.violated - len(told)} more; {MOST_TOLD} are told")
        lines.append(f"       to do: {MEANINGS[check.invariant].advice}")
    return lines


def _verification_record(found: Verification) -> dict[str, object]:
    return {
        "ok": found.clean,
        "at": iso(found.at),
        "counts": dict(found.counts),
        "checks": [
            {
                "invariant": check.invariant.value,
                "meaning": MEANINGS[check.invariant].sentence,
                "looked_at": check.looked_at,
                "violated": check.violated,
            }
            for check in found.checks
        ],
        "violations": [
            {
                "invariant": violation.invariant.value,
                "where": violation.where,
                "what": violation.what,
                "to_do": MEANINGS[violation.invariant].advice,
            }
            for violation in found.violations
        ],
        "not_looked_at": list(found.unseen),
    }


ROLE = "role"
"""Asks for the role that answers, which is no SELECT."""


def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT; - reads it.")],
    param: Annotated[
        list[str] | None, typer.Option("--param", metavar="TEXT", help="For $1, $2 and so on.")
    ] = None,
) -> None:
    """Ask one SELECT over the documented views.

    On PostgreSQL an administrator switches this on, with what `rota sql role` writes.

    Example: rota sql "select state, count(*) from runs group by state"
    """
    desk = CliContext(context)
    if query == ROLE:
        _tell_role(desk)
        return
    wanted = {"sql": text_or_input(query), "params": [*param] if param else None}
    found = desk.call("POST", "/v1/sql", wanted)
    desk.out.record(found)
    rows = [[_cell(value) for value in row] for row in found["rows"]]
    desk.out.table(found["columns"], rows, "No rows.", every=True)
    if found["truncated"]:
        desk.out.talk("There is more than is given.")


def _tell_role(desk: CliContext) -> None:
    from rota.app.composition import sql_role_ddl  # noqa: PLC0415 - seldom needed

    text = sql_role_ddl()
    desk.out.record({"sql": text})
    desk.out.line(text.rstrip())


def _cell(value: object) -> str:
    if value is None:
        return NOTHING
    return value if isinstance(value, str) else compact(value)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("backup")(backup_store)
    app.command("restore")(restore_store)
    app.command("verify")(verify_store)
    app.command("sql")(sql)
