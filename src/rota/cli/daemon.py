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
MOST_RUNS = 1_000_000
MAX_PORT = 65_535


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
    desk = CliContext(context, makes=True)
    settings = desk.settings(port=optional_whole_number("port", port, 0, MAX_PORT), host=host)
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
        redact=load_secrets(settings).redactor.redact_text,
    )
    narrowed.log()
    check_callables_here(settings.home / "spaces")
    import_first(desk, settings.home / FIRST_TASKS)
    delegate_controllers()
    raise_file_limit()
    run_async(_up(desk, settings, samples, name_traces, narrowed.sentences()))


async def _up(
    desk: CliContext,
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
                desk.out.line(line)
            sys.stdout.flush()

        with inprocess_runner(settings) as runner, open_mailboxes(settings, store) as post:
            passes = LocalAttemptTokens(settings.home, store)
            daemon = Daemon(
                lambda: make_supervisor(settings, store, runner, passes=passes, mailboxes=post)
            )
            async with open_http_api(settings, store, daemon, passes) as url:
                lines.insert(len(notes) + 1, f"  api    {url}")
                ending = await daemon.serve(ready)
    if ending is not DaemonExit.DRAINED:
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
    desk = CliContext(context, makes=True)
    most = optional_whole_number("max-runs", max_runs, 1, MOST_RUNS)
    settings = desk.settings()
    if dry_run:
        _tell_foresight(desk, _foresee(desk, settings), most)
        return
    name_traces = configure_logging(
        settings.log_level,
        settings.log_format,
        color=settings.color,
        stream=painted(sys.stderr),
        redact=load_secrets(settings).redactor.redact_text,
    )
    narrowed = make_private(settings)
    narrowed.log()
    for note in narrowed.sentences():
        desk.out.talk(note)
    check_callables_here(settings.home / "spaces")

    async def work() -> dict[str, int]:
        async with open_store(settings) as store:
            await store.take_roles()
            name_traces(store.incarnation)
            await apply_limits(store, settings)
            load_plugins(settings).log_problems()
            with open_mailboxes(settings, store) as post:
                done = await single_pass(settings, store, most, post)
            return {"schedules": done.schedules, "processed": done.processed, "sent": done.sent}

    done = run_async(work())
    desk.out.record(done)
    sent = f", {count_text(done['sent'], 'message')} sent" if done["sent"] else ""
    desk.out.line(f"Processed {count_text(done['processed'], 'run')}{sent}.")


def _foresee(desk: CliContext, settings: Settings) -> PassPreview:
    lost = desk.absence(settings)
    if lost is not None and lost.named:
        raise Unavailable(lost.sentence)
    if lost is not None:
        return PassPreview()

    async def work() -> PassPreview:
        async with open_store(settings) as store:
            return await preview_pass(store)

    return run_async(work())


def _tell_foresight(desk: CliContext, seen: PassPreview, most: int | None) -> None:
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
    desk.out.line(f"Would process {count_text(would_run, 'run')}; nothing was changed.")
    for due in seen.due:
        skipped = "".join(f", {count} {reason}" for reason, count in due.skipped.items())
        desk.out.line(f"  {due.task}: {count_text(len(due.runs_at), 'slot')} due{skipped}")
    for run in seen.ready:
        desk.out.line(f"  {run.task}: run {run.id} is ready")


PLAIN = Policy(metered=False)
TRIED_TWICE = Policy(metered=False, retry=Retry(attempts=2, base=timedelta(seconds=1)))


async def create_samples(store: Store) -> None:
    """Create the sample tasks, unless there are tasks already."""
    if await store.read(list_tasks, None):
        return
    for name, call, title, every, policy in (
        ("hello", "hello", "Says hello", "2s", PLAIN),
        ("count", "count_words", "Counts words, in a thread", "5s", PLAIN),
        ("flaky", "flaky", "Fails once, then succeeds", "8s", TRIED_TWICE),
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
        policy=PLAIN,
        after=After(task="count"),
    )


def pause_all(context: typer.Context, dry_run: DryRun = False) -> None:
    """Let nothing new begin, in every process on the database; what runs goes on.

    Slots that come due meanwhile are skipped and not caught up.

    Example: rota pause-all
    """
    desk = CliContext(context)
    desk.out.record(desk.call("POST", "/v1/pause-all", dry_run=dry_run))
    desk.out.line("Everything is paused until: rota resume-all")


def resume_all(context: typer.Context, dry_run: DryRun = False) -> None:
    """Let work begin again, from now on.

    Example: rota resume-all
    """
    desk = CliContext(context)
    desk.out.record(desk.call("POST", "/v1/resume-all", dry_run=dry_run))
    desk.out.line("Work begins again.")


def stop(context: typer.Context, dry_run: DryRun = False) -> None:
    """Stop the work of the daemon: it lets what runs end, and its API stays open.

    Example: rota stop
    """
    desk = CliContext(context)
    done = desk.call("POST", "/v1/stop", dry_run=dry_run)
    desk.out.record(done)
    desk.out.line(f"The daemon is {done['state']}. Let it work again: rota start")


def start(context: typer.Context, dry_run: DryRun = False) -> None:
    """Let the daemon work again after `rota stop`; a new daemon is started by `rota up`.

    Example: rota start
    """
    desk = CliContext(context)
    done = desk.call("POST", "/v1/start", dry_run=dry_run)
    desk.out.record(done)
    desk.out.line(f"The daemon is {done['state']}.")


def show(context: typer.Context) -> None:
    """Write the address of the API; on a terminal, open it in a browser too.

    Example: rota open
    """
    desk = CliContext(context)
    found = desk.daemon()
    if found is None:
        message = f"no daemon works for {desk.around.home}: start `rota up`"
        raise Unavailable(message)
    desk.out.record({"url": found.url})
    desk.out.line(found.url)
    if sys.stdout.isatty() and not desk.out.as_json:
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
