"""`rota verify`: does everything on record hold? A look at one consistent view; nothing changes."""

from __future__ import annotations

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.show import iso
from rota.flow.observe.telling import counted
from rota.flow.observe.verify import MOST_TOLD, verify
from rota.model.verification import MEANINGS, Verification
from rota.ports.store import Store

INDENT = 7
HOLDS, BROKEN = "✓", "✗"
NOUNS = (("runs", "run"), ("schedules", "schedule"), ("deliveries", "message"))


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("verify")(verify_store)


def verify_store(context: typer.Context) -> None:
    """Check that everything on record holds: slots, runs, attempts, events, messages, limits.

    Reads one consistent view of the database, also while Rota works on it, and changes nothing.
    Exits with 0 if everything holds, with 1 if something does not, with 2 if it could not look.

    Example: rota verify --json
    """
    desk = Desk(context)

    async def work(store: Store) -> Verification:
        return await verify(store)

    found = desk.look(work)
    desk.out.record(_record(found))
    for line in _lines(found):
        desk.out.words(line, INDENT)
    if not found.clean:
        raise typer.Exit(1)


def _lines(found: Verification) -> list[str]:
    seen = ", ".join(counted(found.counts.get(key, 0), noun) for key, noun in NOUNS)
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
    lines.append(f"{counted(sum(c.violated for c in broken), 'violation')}:")
    for check in broken:
        told = [v for v in found.violations if v.invariant is check.invariant]
        lines += [f"  {v.invariant:<3}  {v.where}: {v.what}" for v in told]
        if check.violated > len(told):
            lines.append(f"       and {check.violated - len(told)} more; {MOST_TOLD} are told")
        lines.append(f"       to do: {MEANINGS[check.invariant].advice}")
    return lines


def _record(found: Verification) -> dict[str, object]:
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
