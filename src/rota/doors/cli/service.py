"""`rota service`: let the system start Rota, keep it running and stop it in order."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.values import DryRun, whole
from rota.errors import Invalid, Unavailable
from rota.wiring.lacking import search_path
from rota.wiring.surroundings import home_folder
from rota.wiring.units import Service, launchd_plist, says_the_same, systemd_unit

PRIVATE = 0o600
MOST_LINES = 100_000
LINGER = "It ends when you log out, unless you run once: loginctl enable-linger"

nouns = typer.Typer(
    help="The daemon as a service of this user: started with the system, kept running.\n\n"
    "Example: rota service install",
    rich_markup_mode=None,
)
Manager = Annotated[
    str | None,
    typer.Option("--manager", metavar="NAME", help="systemd or launchd [this system's]."),
]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="service")


@dataclass(frozen=True, slots=True)
class _Plan:
    """A service as one manager knows it: its file, and the words for each verb."""

    file: Path
    text: str
    install: Sequence[Sequence[str]]
    start: Sequence[Sequence[str]]
    stop: Sequence[Sequence[str]]
    status: Sequence[str]
    logs: Callable[[int, bool], Sequence[str]]


def _systemd(service: Service) -> _Plan:
    unit = f"{service.name}.service"
    control = ("systemctl", "--user")
    return _Plan(
        file=Path.home() / ".config" / "systemd" / "user" / unit,
        text=systemd_unit(service),
        install=[(*control, "daemon-reload"), (*control, "enable", unit)],
        start=[(*control, "start", unit)],
        stop=[(*control, "stop", unit)],
        status=(*control, "is-active", "--quiet", unit),
        logs=lambda lines, follow: (
            *("journalctl", "--user", "--unit", unit, "--output", "cat", "--no-pager"),
            *("--lines", str(lines)),
            *(("--follow",) if follow else ()),
        ),
    )


def _launchd(service: Service) -> _Plan:
    domain = f"gui/{os.getuid()}"
    file = Path.home() / "Library" / "LaunchAgents" / f"{service.label}.plist"
    return _Plan(
        file=file,
        text=launchd_plist(service),
        install=[],
        start=[("launchctl", "bootstrap", domain, str(file))],
        stop=[("launchctl", "bootout", f"{domain}/{service.label}")],
        status=("launchctl", "print", f"{domain}/{service.label}"),
        logs=lambda lines, follow: (
            *("tail", "-n", str(lines)),
            *(("-F",) if follow else ()),
            str(service.log),
        ),
    )


MANAGERS: dict[str, Callable[[Service], _Plan]] = {"systemd": _systemd, "launchd": _launchd}


@nouns.command()
def install(context: typer.Context, manager: Manager = None, dry_run: DryRun = False) -> None:
    """Write the file that keeps `rota up` running for this home, and have it start at login.

    The service finds programs on the PATH of this shell: install it again when that has changed.

    Example: rota service install --dry-run
    """
    desk = Desk(context)
    plan = _plan(desk, manager)
    if not dry_run:
        _write(plan)
    _carry_out(desk, plan, plan.install, dry_run=dry_run, text=plan.text)
    desk.out.line(f"Wrote {plan.file}.")
    desk.out.talk("Start it now: rota service start")
    if plan.file.suffix == ".service":
        desk.out.talk(LINGER)


@nouns.command()
def start(context: typer.Context, manager: Manager = None, dry_run: DryRun = False) -> None:
    """Start the service.

    Example: rota service start
    """
    desk = Desk(context)
    plan = _installed(desk, manager)
    _carry_out(desk, plan, plan.start, dry_run=dry_run)
    desk.out.line("Started.")


@nouns.command()
def stop(context: typer.Context, manager: Manager = None, dry_run: DryRun = False) -> None:
    """Stop the service in order: what runs may end first, within the drain.

    Example: rota service stop
    """
    desk = Desk(context)
    plan = _installed(desk, manager)
    _carry_out(desk, plan, plan.stop, dry_run=dry_run)
    desk.out.line("Stopped.")


@nouns.command()
def status(context: typer.Context, manager: Manager = None) -> None:
    """Tell whether the service is installed and runs; exits with 1 if it does not run.

    Example: rota service status
    """
    desk = Desk(context)
    plan = _plan(desk, manager)
    there = plan.file.exists()
    runs = there and _run(plan.status, quiet=True) == 0
    current = there and says_the_same(plan.file.read_text(encoding="utf-8"), plan.text)
    record = {"file": str(plan.file), "installed": there, "current": current, "running": runs}
    desk.out.record(record)
    if not there:
        desk.out.line("Not installed: rota service install")
    else:
        desk.out.line(f"{'Running' if runs else 'Not running'} ({plan.file}).")
        if not current:
            desk.out.line("Its file is not what this Rota writes: rota service install")
    if not runs:
        raise typer.Exit(1)


@nouns.command()
def logs(
    context: typer.Context,
    lines: Annotated[str, typer.Option("--lines", "-n", metavar="N", help="At most N.")] = "100",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as they come.")] = False,
    manager: Manager = None,
) -> None:
    """Show what the service has logged last.

    Example: rota service logs -f
    """
    desk = Desk(context)
    plan = _installed(desk, manager)
    code = _run(plan.logs(whole("lines", lines, 1, MOST_LINES), follow))
    if code:
        raise typer.Exit(1)


def _plan(desk: Desk, manager: str | None) -> _Plan:
    name = manager or ("launchd" if sys.platform == "darwin" else "systemd")
    if name not in MANAGERS:
        raise Invalid("manager", name, f"use {' or '.join(MANAGERS)}")
    settings = desk.settings()
    service = Service(
        words=[*_rota(), "up"],
        home=settings.home,
        usual=settings.home == home_folder("~/.rota"),
        drain=settings.drain,
        store=desk.invocation.store,
        path=search_path(),
    )
    return MANAGERS[name](service)


def _installed(desk: Desk, manager: str | None) -> _Plan:
    plan = _plan(desk, manager)
    if not plan.file.exists():
        message = f"there is no service for {desk.around.home}: rota service install"
        raise Unavailable(message)
    return plan


def _rota() -> list[str]:
    """Return the words that start this same Rota, wherever the service manager looks from."""
    beside = Path(sys.executable).with_name("rota")
    found = str(beside) if beside.exists() else shutil.which("rota")
    if found is None:
        message = "the program `rota` is not found: install Rota with pip or uv first"
        raise Unavailable(message)
    return [found]


def _write(plan: _Plan) -> None:
    """Put the file in its place whole; it may hold the password of a database."""
    begun = plan.file.with_name(f".{plan.file.name}.{os.getpid()}")
    try:
        plan.file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(plan.text)
        begun.replace(plan.file)
    except OSError as fault:
        message = f"cannot write {plan.file}: {(fault.strerror or str(fault)).lower()}"
        raise Unavailable(message) from fault


def _carry_out(
    desk: Desk, plan: _Plan, lines: Sequence[Sequence[str]], *, dry_run: bool, text: str = ""
) -> None:
    """Run what a verb takes, or only show it."""
    told = [" ".join(words) for words in lines]
    if dry_run:
        desk.out.record({"dry_run": True, "file": str(plan.file), "text": text, "commands": told})
        if text:
            desk.out.talk(f"Would write {plan.file}:")
            desk.out.line(text.rstrip("\n"))
        for line in told:
            desk.out.talk(f"Would run: {line}")
        raise typer.Exit(0)
    for words in lines:
        if _run(words) != 0:
            _fail(words)
    desk.out.record({"file": str(plan.file), "commands": told})


def _run(words: Sequence[str], *, quiet: bool = False) -> int:
    out = subprocess.DEVNULL if quiet else None
    try:
        return subprocess.run(words, check=False, stdout=out, stderr=out).returncode  # noqa: S603
    except OSError as fault:
        message = f"cannot run {words[0]}: {(fault.strerror or str(fault)).lower()}"
        raise Unavailable(message) from fault


def _fail(words: Sequence[str]) -> NoReturn:
    message = f"`{' '.join(words)}` failed: what it said is above, or see `rota service logs`"
    raise Unavailable(message)
