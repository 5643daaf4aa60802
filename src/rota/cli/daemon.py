"""`rota up`, `once`, `open`, `pause-all`, `resume-all`, `stop` and `start`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated

import typer

from rota.app.addresses import hidden_password
from rota.app.composition import (
    apply_limits,
    inprocess_runner,
    make_home,
    make_supervisor,
    open_store,
    single_pass,
)
from rota.app.daemon import Daemon, DaemonExit
from rota.app.endpoints import open_http_api, open_mailboxes
from rota.app.file_modes import make_private
from rota.app.logging import configure_logging
from rota.app.plugins import load_plugins
from rota.app.secrets import load_secrets
from rota.app.settings import Settings
from rota.app.tokens import LocalAttemptTokens
from rota.cli.arguments import DryRun, check_callables_here, optional_whole_number
from rota.cli.context import CliContext
from rota.cli.tasks import import_first
from rota.cli.terminal_filter import painted
from rota.errors import Unavailable
from rota.executors.shared.resource_limits import delegate_controllers
from rota.flow.define.schedules import ScheduleSpec
from rota.flow.define.tasks import put_task
from rota.flow.observe.time_text import count_text
from rota.flow.plan import PassPreview, preview_pass
from rota.keeper.build import raise_file_limit
from rota.model.tasks import After, Policy, Retry
from rota.rules.permissions import LOCAL
from rota.runtime.event_loop import run_async, tune_memory
from rota.store.store import Store
from rota.store.views import list_tasks

LOG_FILE = "logs/rota.log"
FIRST_TASKS = "tasks.toml"
EXIT_CODES = {DaemonExit.LEFT_BEHIND: 0, DaemonExit.INTERRUPTED: 130}
MAX_RUNS = 1_000_000
MAX_PORT = 65_535


def up(
    context: typer.Context,
    samples: Annotated[
        bool, typer.Option("--samples", help="Create sample tasks if there are no tasks yet")
    ] = False,
    port: Annotated[
        str | None,
        typer.Option("--port", metavar="N", help="Port of the API [default: 7682 if free]"),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="ADDRESS", help="Address of the API [default: 127.0.0.1]"),
    ] = None,
) -> None:
    """Start the daemon in the foreground.

    SIGTERM or Ctrl-C waits for running functions, at limit for the setting `drain`, releases the
    others and exits with 0. A second Ctrl-C stops immediately and exits with 130; functions that
    were running are handled at the next start according to --on-missing of their tasks. Scripts and
    agents continue without the daemon, and the next daemon takes them over.

    Permissions of other users are removed from Rota's files in the home folder, except below
    `spaces`, and each change is reported.

    The daemon serves the HTTP API; other commands find it by the home folder. If there are no
    tasks yet, it creates those of tasks.toml in the home folder, as `rota apply` does.

    Example: rota up --home ./.rota --port 7682
    """
    cli = CliContext(context, creates_home=True)
    settings = cli.settings(port=optional_whole_number("port", port, 0, MAX_PORT), host=host)
    form = "json" if cli.out.as_json else settings.log_format
    make_home(settings)
    permissions = make_private(settings)
    file = settings.log_file or settings.home / LOG_FILE
    name_traces = configure_logging(
        settings.log_level,
        form,
        color=settings.color,
        stream=painted(sys.stderr),
        file=file,
        redact=load_secrets(settings).redactor.redact_text,
    )
    permissions.log()
    check_callables_here(settings.home / "spaces")
    import_first(cli, settings.home / FIRST_TASKS)
    delegate_controllers()
    raise_file_limit()
    run_async(_up(cli, settings, samples, name_traces, permissions.sentences()))


async def _up(
    cli: CliContext,
    settings: Settings,
    samples: bool,
    name_traces: Callable[[str], None],
    notes: list[str],
) -> None:
    async with open_store(settings) as store:
        await store.take_roles()
        name_traces(store.incarnation)
        await apply_limits(store, settings)
        if samples:
            await create_samples(store)
        tasks = await store.read(list_tasks, None)
        lines = [*notes, *_greeting(settings, len(tasks))]

        def ready() -> None:
            tune_memory()
            load_plugins(settings).log_problems()
            for line in lines:
                cli.out.line(line)
            sys.stdout.flush()

        with inprocess_runner(settings) as runner, open_mailboxes(settings, store) as post:
            tokens = LocalAttemptTokens(settings.home, store)
            daemon = Daemon(
                lambda: make_supervisor(settings, store, runner, passes=tokens, mailboxes=post)
            )
            async with open_http_api(settings, store, daemon, tokens) as url:
                lines.insert(len(notes) + 1, f"  api    {url}")
                exit_reason = await daemon.serve(ready)
    if exit_reason is not DaemonExit.DRAINED:
        # Work that cannot be stopped would keep the interpreter running.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(EXIT_CODES[exit_reason])


def _greeting(settings: Settings, tasks: int) -> list[str]:
    drain = settings.drain.total_seconds()
    add = "rota task create hello --call rota.samples:hello --every 10s"
    look = "rota status, rota runs, rota task list, rota why TASK"
    agents = "scripts and agents continue; press it twice to stop immediately"
    return [
        "Rota is running.",
        f"  store  {hidden_password(settings.store)}",
        f"  home   {settings.home}",
        f"  tasks  {tasks}",
        f"  next   {look if tasks else add}",
        f"  stop   Ctrl-C waits for functions (at limit {drain:g} s); {agents}",
    ]


def once(
    context: typer.Context,
    max_runs: Annotated[
        str | None, typer.Option("--max-runs", metavar="N", help="Maximum number of runs to start")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen without changing anything")
    ] = False,
) -> None:
    """Plan due slots, execute ready runs, send deliveries, and exit.

    Example: rota once --max-runs 10
    """
    cli = CliContext(context, creates_home=True)
    limit = optional_whole_number("max-runs", max_runs, 1, MAX_RUNS)
    settings = cli.settings()
    if dry_run:
        _show_preview(cli, _preview(cli, settings), limit)
        return
    name_traces = configure_logging(
        settings.log_level,
        settings.log_format,
        color=settings.color,
        stream=painted(sys.stderr),
        redact=load_secrets(settings).redactor.redact_text,
    )
    permissions = make_private(settings)
    permissions.log()
    for note in permissions.sentences():
        cli.out.talk(note)
    check_callables_here(settings.home / "spaces")

    async def work() -> dict[str, int]:
        async with open_store(settings) as store:
            await store.take_roles()
            name_traces(store.incarnation)
            await apply_limits(store, settings)
            load_plugins(settings).log_problems()
            with open_mailboxes(settings, store) as post:
                done = await single_pass(settings, store, limit, post)
            return {"schedules": done.schedules, "processed": done.processed, "sent": done.sent}

    done = run_async(work())
    cli.out.record(done)
    sent = f", sent {count_text(done['sent'], 'delivery')}" if done["sent"] else ""
    cli.out.line(f"Executed {count_text(done['processed'], 'run')}{sent}.")


def _preview(cli: CliContext, settings: Settings) -> PassPreview:
    missing = cli.absence(settings)
    if missing is not None and missing.named:
        raise Unavailable(missing.sentence)
    if missing is not None:
        return PassPreview()

    async def work() -> PassPreview:
        async with open_store(settings) as store:
            return await preview_pass(store)

    return run_async(work())


def _show_preview(cli: CliContext, preview: PassPreview, limit: int | None) -> None:
    planned = sum(len(due.runs_at) for due in preview.due)
    ready = planned + len(preview.ready)
    would_run = ready if limit is None else min(ready, limit)
    cli.out.record(
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
                for due in preview.due
            ],
            "ready": [{"run": run.id, "task": run.task} for run in preview.ready],
        }
    )
    cli.out.line(f"Dry run: would execute {count_text(would_run, 'run')}; nothing was changed.")
    for due in preview.due:
        skipped = "".join(f", {count} {reason}" for reason, count in due.skipped.items())
        cli.out.line(f"  {due.task}: {count_text(len(due.runs_at), 'slot')} due{skipped}")
    for run in preview.ready:
        cli.out.line(f"  {run.task}: run {run.id} is ready")


UNMETERED = Policy(metered=False)
RETRIED = Policy(metered=False, retry=Retry(attempts=2, base=timedelta(seconds=1)))


async def create_samples(store: Store) -> None:
    """Create the sample tasks, unless there are tasks already."""
    if await store.read(list_tasks, None):
        return
    for name, call, title, every, policy in (
        ("hello", "hello", "Says hello", "2s", UNMETERED),
        ("count", "count_words", "Counts words, in a thread", "5s", UNMETERED),
        ("flaky", "flaky", "Fails once, then succeeds", "8s", RETRIED),
    ):
        await put_task(
            store,
            LOCAL,
            name,
            title=title,
            route="python",
            spec={"call": f"rota.samples:{call}"},
            policy=policy,
            wish=ScheduleSpec(every=every),
        )
    await put_task(
        store,
        LOCAL,
        "summary",
        title="Tells what count returned",
        route="python",
        spec={"call": "rota.samples:summary"},
        policy=UNMETERED,
        after=After(task="count"),
    )


def pause_all(context: typer.Context, dry_run: DryRun = False) -> None:
    """Pause all work, in every process that uses the database; running runs continue.

    Slots that come due meanwhile are skipped.

    Example: rota pause-all
    """
    cli = CliContext(context)
    cli.out.record(cli.call("POST", "/v1/pause-all", dry_run=dry_run))
    cli.out.line("Everything is paused. To resume: rota resume-all")


def resume_all(context: typer.Context, dry_run: DryRun = False) -> None:
    """Resume work, from now on.

    Example: rota resume-all
    """
    cli = CliContext(context)
    cli.out.record(cli.call("POST", "/v1/resume-all", dry_run=dry_run))
    cli.out.line("Resumed.")


def stop(context: typer.Context, dry_run: DryRun = False) -> None:
    """Stop the work of the daemon: it waits for running runs, and its API remains available.

    Example: rota stop
    """
    cli = CliContext(context)
    done = cli.call("POST", "/v1/stop", dry_run=dry_run)
    cli.out.record(done)
    cli.out.line(f"The daemon is {done['state']}. To start it again: rota start")


def start(context: typer.Context, dry_run: DryRun = False) -> None:
    """Start the work of the daemon again after `rota stop`.

    Example: rota start
    """
    cli = CliContext(context)
    done = cli.call("POST", "/v1/start", dry_run=dry_run)
    cli.out.record(done)
    cli.out.line(f"The daemon is {done['state']}.")


def show(context: typer.Context) -> None:
    """Write the address of the API, and open it in a browser on a terminal.

    Example: rota open
    """
    cli = CliContext(context)
    found = cli.daemon()
    if found is None:
        message = f"no daemon is running for {cli.around.home}: start `rota up`"
        raise Unavailable(message)
    cli.out.record({"url": found.url})
    cli.out.line(found.url)
    if sys.stdout.isatty() and not cli.out.as_json:
        import webbrowser  # noqa: PLC0415 - slow to load

        webbrowser.open(found.url)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("up")(up)
    app.command("once")(once)
    app.command("pause-all")(pause_all)
    app.command("resume-all")(resume_all)
    app.command("stop")(stop)
    app.command("start")(start)
    app.command("open")(show)
