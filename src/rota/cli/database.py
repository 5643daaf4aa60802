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

File = Annotated[str, typer.Argument(metavar="FILE", help="Backup file", show_default=False)]
BACKUP_NOUNS = (("tasks", "task"), ("schedules", "schedule"), ("runs", "run"), ("events", "event"))


def backup_store(
    context: typer.Context,
    file: File,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file")] = False,
) -> None:
    """Write a backup of the database to a file, also while the daemon runs.

    The file is consistent, verified and readable only by its owner. It appears when it is complete.

    Example: rota backup /backups/rota-monday.zip
    """
    cli = CliContext(context)

    async def work(store: Store) -> Backup:
        return await back_up(store.database, file, force=force)

    made = cli.look(work)
    cli.out.record(_backup_record(made))
    cli.out.line(f"Wrote {made.path}: {_rows(made)}, {made.size:,} bytes.")
    cli.out.line(f"The backup has the state of {made.at:%Y-%m-%d %H:%M:%S} UTC.")


def restore_store(
    context: typer.Context,
    file: File,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a database that is not empty")
    ] = False,
    catch_up: Annotated[
        bool,
        typer.Option("--catch-up", help="Continue from the backup; Rota has not run since then"),
    ] = False,
) -> None:
    """Replace the database with a backup; no daemon may be running on it.

    Changes since the backup are lost. Slots since then are recorded as not caught up, pending
    deliveries become unknown and are not sent, and running runs are settled as lost. With
    --catch-up, slots are handled by the catch-up policy of each task, and pending deliveries are
    sent.

    If it is interrupted, either the old or the new database is in place.

    Example: rota restore /backups/rota-monday.zip
    """
    cli = CliContext(context)
    settings = cli.settings()
    store = closed_store(settings)
    done = asyncio.run(restore(store, file, as_it_stood=catch_up, force=force))
    passage = done.passage
    cli.out.record(
        {
            "backup": _backup_record(done.backup),
            "incarnation": done.incarnation,
            "slots_passed_over": passage.slots,
            "messages_in_doubt": passage.messages,
            "runs_lost": passage.running,
            "aside": done.aside,
        }
    )
    cli.out.line(f"Restored {hidden_password(settings.store)}: {_rows(done.backup)}.")
    cli.out.line(f"  state of  {done.backup.at:%Y-%m-%d %H:%M:%S} UTC")
    if done.aside is not None:
        cli.out.line(f"  previous  moved to {done.aside}")
    if passage.slots:
        cli.out.line(f"  slots     {count_text(passage.slots, 'slot')} since then not caught up")
    if passage.messages:
        deliveries = count_text(passage.messages, "pending delivery")
        cli.out.line(f"  outbox    {deliveries} may have been sent since: set to unknown")
    if passage.running:
        cli.out.line(
            f"  runs      {count_text(passage.running, 'run')} lost: settled at the next start"
        )
    cli.out.line("  next      rota verify, then rota up")


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
VERIFIED_NOUNS = (("runs", "run"), ("schedules", "schedule"), ("deliveries", "delivery"))


def verify_store(context: typer.Context) -> None:
    """Check the invariants of the database: slots, runs, attempts, events, deliveries, limits.

    Reads one consistent snapshot, also while the daemon runs, and changes nothing. Exits with 0 if
    all invariants hold, with 1 if one does not, and with 2 if the check failed.

    Example: rota verify --json
    """
    cli = CliContext(context)

    async def work(store: Store) -> Verification:
        return await verify(store)

    found = cli.look(work)
    cli.out.record(_verification_record(found))
    for line in _lines(found):
        cli.out.words(line, INDENT)
    if not found.clean:
        raise typer.Exit(1)


def _lines(found: Verification) -> list[str]:
    counts = ", ".join(count_text(found.counts.get(key, 0), noun) for key, noun in VERIFIED_NOUNS)
    lines = [f"Checked {counts}, as of {found.at:%Y-%m-%d %H:%M:%S} UTC."]
    width = max(len(f"{check.looked_at:,}") for check in found.checks)
    for check in found.checks:
        mark = BROKEN if check.violated else HOLDS
        sentence = MEANINGS[check.invariant].sentence
        lines.append(f"{mark} {check.invariant:<3}  {check.looked_at:>{width},}  {sentence}")
    lines += [f"Not checked: {what}." for what in found.unseen]
    if found.clean:
        return [*lines, "All invariants hold."]
    broken = [check for check in found.checks if check.violated]
    lines.append(f"{count_text(sum(c.violated for c in broken), 'violation')}:")
    for check in broken:
        shown = [v for v in found.violations if v.invariant is check.invariant]
        lines += [f"  {v.invariant:<3}  {v.where}: {v.what}" for v in shown]
        if check.violated > len(shown):
            lines.append(
                f"       and {check.violated - len(shown)} more (at most {MOST_TOLD} shown)"
            )
        lines.append(f"       solution: {MEANINGS[check.invariant].advice}")
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
"""The query that writes the statements for the database role."""


def sql(
    context: typer.Context,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="One SELECT statement; - reads standard input")
    ],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="TEXT", help="Value of the next parameter, repeatable"),
    ] = None,
) -> None:
    """Run one SELECT statement on the documented views.

    On PostgreSQL an administrator must first run the statements that `rota sql role` writes.

    Example: rota sql "select state, count(*) from runs group by state"
    """
    cli = CliContext(context)
    if query == ROLE:
        _show_role(cli)
        return
    body = {"sql": text_or_input(query), "params": [*param] if param else None}
    found = cli.call("POST", "/v1/sql", body)
    cli.out.record(found)
    rows = [[_cell(value) for value in row] for row in found["rows"]]
    cli.out.table(found["columns"], rows, "No rows found.", every=True)
    if found["truncated"]:
        cli.out.talk("The result was truncated.")


def _show_role(cli: CliContext) -> None:
    from rota.app.composition import sql_role_ddl  # noqa: PLC0415 - rarely needed

    text = sql_role_ddl()
    cli.out.record({"sql": text})
    cli.out.line(text.rstrip())


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
