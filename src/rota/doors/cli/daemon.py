"""`rota up` and `rota once`: the roles, for as long as wanted or for a single pass."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from rota.doors.api.door import open_door
from rota.doors.cli.apply import import_first
from rota.doors.cli.calls import look_here
from rota.doors.cli.desk import Desk
from rota.doors.cli.output import painted
from rota.doors.cli.samples import create_samples
from rota.doors.cli.values import maybe_whole
from rota.doors.inside.mailbox.opening import post_of
from rota.errors import Unavailable
from rota.executors.kit.descriptors import take_descriptors
from rota.executors.kit.groups import settle_in
from rota.flow.observe.foresight import Foresight, foresee
from rota.flow.observe.telling import counted
from rota.wiring.addresses import hidden_password
from rota.wiring.compose import (
    apply_limits,
    callables,
    make_crew,
    make_home,
    opened,
    single_pass,
)
from rota.wiring.daemon import Daemon, Ending
from rota.wiring.logging import configure_logging
from rota.wiring.loop import run_async, settle_memory
from rota.wiring.passes import HomePasses
from rota.wiring.permissions import make_private
from rota.wiring.secrets import secrets_of
from rota.wiring.settings import Settings

LOG_FILE = "logs/rota.log"
FIRST_TASKS = "tasks.toml"
EXIT_CODES = {Ending.LEFT_BEHIND: 0, Ending.INTERRUPTED: 130}
MOST_RUNS = 1_000_000
HIGHEST_PORT = 65_535


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("up")(up)
    app.command("once")(once)


def up(
    context: typer.Context,
    samples: Annotated[
        bool, typer.Option("--samples", help="Create a few sample tasks if there are no tasks yet.")
    ] = False,
    port: Annotated[
        str | None, typer.Option("--port", metavar="N", help="Port of the API [7682 if free].")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Address of it [127.0.0.1].")
    ] = None,
) -> None:
    """Start Rota in the foreground: plan, run, deliver and repair until stopped.

    SIGTERM or Ctrl-C lets callables end, within the setting `drain`, gives back the rest and
    exits with 0; a second Ctrl-C stops at once and exits with 130. Callables that were running
    then are tried again at the next start, as the task's --on-lost says. Scripts and agents go on
    without the daemon, and the next one carries them on.

    What is Rota's own in the home folder is taken from other users of the machine (0700, 0600),
    and what was is told; what lies below `spaces` stays as it is.

    The HTTP API is served meanwhile; the other commands find it by the home folder. If there are
    no tasks yet, those of tasks.toml in the home folder are created, as `rota apply` does.

    Example: rota up --home ./.rota --port 7682
    """
    desk = Desk(context, makes=True)
    settings = desk.settings(port=maybe_whole("port", port, 0, HIGHEST_PORT), host=host)
    form = "json" if desk.out.as_json else settings.log_format
    make_home(settings)
    narrowed = make_private(settings)
    file = settings.log_file or settings.home / LOG_FILE
    name_traces = configure_logging(
        settings.log_level,
        form,
        color=settings.color,
        stream=painted(sys.stderr),
        file=file,
        redact=secrets_of(settings).redactor.text,
    )
    narrowed.log()
    look_here(settings.home / "spaces")
    import_first(desk, settings.home / FIRST_TASKS)
    settle_in()
    take_descriptors()
    run_async(_up(desk, settings, samples, name_traces, narrowed.sentences()))


async def _up(
    desk: Desk,
    settings: Settings,
    samples: bool,
    name_traces: Callable[[str], None],
    notes: list[str],
) -> None:
    async with opened(settings) as store:
        await store.take_roles()
        name_traces(store.incarnation)
        await apply_limits(store, settings)
        if samples:
            await create_samples(store)
        tasks = await store.list_tasks(None)
        lines = [*notes, *_greeting(settings, len(tasks))]

        def ready() -> None:
            settle_memory()
            for line in lines:
                desk.out.line(line)
            sys.stdout.flush()

        with callables(settings) as runner, post_of(settings, store) as post:
            passes = HomePasses(settings.home, store)
            daemon = Daemon(
                lambda: make_crew(settings, store, runner, passes=passes, mailboxes=post)
            )
            async with open_door(settings, store, daemon, passes) as url:
                lines.insert(len(notes) + 1, f"  api    {url}")
                ending = await daemon.serve(ready)
    if ending is not Ending.DRAINED:
        # Work that cannot be stopped would keep the loop and the interpreter from ending.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(EXIT_CODES[ending])


def _greeting(settings: Settings, tasks: int) -> list[str]:
    drain = settings.drain.total_seconds()
    add = "rota task create hello --call rota.samples:hello --every 10s"
    look = "rota status, rota runs, rota task list, rota why TASK"
    go_on = "scripts and agents go on, for the next `rota up`; twice stops at once"
    return [
        "Rota is up.",
        f"  store  {hidden_password(settings.store)}",
        f"  home   {settings.home}",
        f"  tasks  {tasks}",
        f"  next   {look if tasks else add}",
        f"  stop   Ctrl-C lets callables end ({drain:g} s at most); {go_on}",
    ]


def once(
    context: typer.Context,
    max_runs: Annotated[
        str | None, typer.Option("--max-runs", metavar="N", help="Begin at most N runs.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen and change nothing.")
    ] = False,
) -> None:
    """Make a single pass: plan what is due, run what is ready, deliver, and exit.

    Example: rota once --max-runs 10
    """
    desk = Desk(context, makes=True)
    most = maybe_whole("max-runs", max_runs, 1, MOST_RUNS)
    settings = desk.settings()
    if dry_run:
        _tell_foresight(desk, _foresee(desk, settings), most)
        return
    name_traces = configure_logging(
        settings.log_level,
        settings.log_format,
        color=settings.color,
        stream=painted(sys.stderr),
        redact=secrets_of(settings).redactor.text,
    )
    narrowed = make_private(settings)
    narrowed.log()
    for note in narrowed.sentences():
        desk.out.talk(note)
    look_here(settings.home / "spaces")

    async def work() -> dict[str, int]:
        async with opened(settings) as store:
            await store.take_roles()
            name_traces(store.incarnation)
            await apply_limits(store, settings)
            with post_of(settings, store) as post:
                done = await single_pass(settings, store, most, post)
            return {"schedules": done.schedules, "processed": done.processed, "sent": done.sent}

    done = run_async(work())
    desk.out.record(done)
    sent = f", {counted(done['sent'], 'message')} sent" if done["sent"] else ""
    desk.out.line(f"Processed {counted(done['processed'], 'run')}{sent}.")


def _foresee(desk: Desk, settings: Settings) -> Foresight:
    lost = desk.absence(settings)
    if lost is not None and lost.named:
        raise Unavailable(lost.sentence)
    if lost is not None:
        return Foresight()

    async def work() -> Foresight:
        async with opened(settings) as store:
            return await foresee(store)

    return run_async(work())


def _tell_foresight(desk: Desk, seen: Foresight, most: int | None) -> None:
    planned = sum(len(due.runs_at) for due in seen.due)
    ready = planned + len(seen.ready)
    would_run = ready if most is None else min(ready, most)
    desk.out.record(
        {
            "dry_run": True,
            "would_run": would_run,
            "due": [
                {
                    "task": due.task,
                    "schedule": due.schedule,
                    "runs": [at.isoformat() for at in due.runs_at],
                    "skipped": due.skipped,
                }
                for due in seen.due
            ],
            "ready": [{"run": run.id, "task": run.task} for run in seen.ready],
        }
    )
    desk.out.line(f"Would process {counted(would_run, 'run')}; nothing was changed.")
    for due in seen.due:
        skipped = "".join(f", {count} {reason}" for reason, count in due.skipped.items())
        desk.out.line(f"  {due.task}: {counted(len(due.runs_at), 'slot')} due{skipped}")
    for run in seen.ready:
        desk.out.line(f"  {run.task}: run {run.id} is ready")
