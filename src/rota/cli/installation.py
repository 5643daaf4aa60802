"""`rota service` (systemd, launchd) and `rota completion`."""

from __future__ import annotations

import hashlib
import os
import plistlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from rota.app.environment import home_folder
from rota.app.sites import search_path
from rota.cli.arguments import DryRun, whole_number
from rota.cli.context import CliContext
from rota.cli.help_pages import COMPLETE
from rota.errors import Invalid, Unavailable

NAME = "rota"
LABEL = "org.rota"
STOP_SLACK = timedelta(seconds=20)
"""Beyond the drain, before a service manager may kill: what ended has to be written down."""
_PATH = re.compile(r'(Environment="PATH=|<key>PATH</key>\s*<string>).*')
USAGE = 2
"""The exit code of settings that are wrong: starting again will not mend them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUnit:
    """One daemon that is kept running: the words that start it, and where it lives."""

    words: Sequence[str]
    home: Path
    usual: bool
    drain: timedelta
    store: str | None = None
    path: str | None = None

    @property
    def name(self) -> str:
        """Its name to a service manager; a home of one's own makes a service of its own."""
        if self.usual:
            return NAME
        short = re.sub(r"[^A-Za-z0-9]+", "-", self.home.name).strip("-") or "home"
        return f"{NAME}-{short}-{hashlib.sha256(str(self.home).encode()).hexdigest()[:6]}"

    @property
    def label(self) -> str:
        """Its name on macOS."""
        return f"{LABEL}.{self.name}"

    @property
    def log(self) -> Path:
        """Where its log goes on macOS, which has no journal."""
        return self.home / "rota.log"

    @property
    def environment(self) -> dict[str, str]:
        """What it is told beside its settings file."""
        told = {"ROTA_HOME": str(self.home), "ROTA_STORE": self.store, "PATH": self.path}
        return {name: value for name, value in told.items() if value is not None}

    @property
    def stop_seconds(self) -> int:
        """How long it may take to stop."""
        return int((self.drain + STOP_SLACK).total_seconds())


def systemd_unit(service: ServiceUnit) -> str:
    """Return a user unit.

    A stop ends the daemon and nothing else: what it started is handed over, not killed. Delegate
    gives it the right to part its own control group, where it bounds what it starts; it stands in a
    leaf of that group itself (an older systemd than 254 does not know that word and passes it by).
    """
    start = " ".join(_word(word, command=True) for word in service.words)
    environment = "\n".join(
        f"Environment={_word(f'{name}={value}')}" for name, value in service.environment.items()
    )
    return f"""\
# Made by `rota service install`, which makes it anew.
[Unit]
Description=Rota, the duty roster for agents ({_plain(str(service.home))})
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={start}
{environment}
Restart=on-failure
RestartSec=2
RestartPreventExitStatus={USAGE}
KillMode=process
KillSignal=SIGTERM
TimeoutStopSec={service.stop_seconds}
Delegate=yes
DelegateSubgroup=rota.leaf
UMask=0077

[Install]
WantedBy=default.target
"""


def launchd_plist(service: ServiceUnit) -> str:
    """Return an agent for launchd; AbandonProcessGroup is its word for ending the daemon alone."""
    facts = {
        "Label": service.label,
        "ProgramArguments": list(service.words),
        "EnvironmentVariables": service.environment,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 2,
        "AbandonProcessGroup": True,
        "ExitTimeOut": service.stop_seconds,
        "Umask": 0o077,
        "StandardOutPath": str(service.log),
        "StandardErrorPath": str(service.log),
    }
    return plistlib.dumps(facts, sort_keys=False).decode()


def says_the_same(one: str, other: str) -> bool:
    """Tell whether two files are the same but for the PATH: that is of the shell that wrote it."""
    return _PATH.sub(r"\1", one) == _PATH.sub(r"\1", other)


def _word(text: str, *, command: bool = False) -> str:
    """Return a word as systemd reads it back: `%` begins a specifier, `$` a variable."""
    text = _plain(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{text.replace("$", "$$") if command else text}"'


def _plain(text: str) -> str:
    return text.replace("%", "%%").replace("\n", " ")


PRIVATE = 0o600
MOST_LINES = 100_000
LINGER = "It ends when you log out, unless you run once: loginctl enable-linger"

service_app = typer.Typer(
    help="The daemon as a service of this user: started with the system, kept running.\n\n"
    "Example: rota service install",
    rich_markup_mode=None,
)
Manager = Annotated[
    str | None,
    typer.Option("--manager", metavar="NAME", help="systemd or launchd [this system's]."),
]


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


def _systemd(service: ServiceUnit) -> _Plan:
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


def _launchd(service: ServiceUnit) -> _Plan:
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


MANAGERS: dict[str, Callable[[ServiceUnit], _Plan]] = {"systemd": _systemd, "launchd": _launchd}


@service_app.command()
def install(context: typer.Context, manager: Manager = None, dry_run: DryRun = False) -> None:
    """Write the file that keeps `rota up` running for this home, and have it start at login.

    The service finds programs on the PATH of this shell: install it again when that has changed.

    Example: rota service install --dry-run
    """
    desk = CliContext(context)
    plan = _plan(desk, manager)
    if not dry_run:
        _write(plan)
    _carry_out(desk, plan, plan.install, dry_run=dry_run, text=plan.text)
    desk.out.line(f"Wrote {plan.file}.")
    desk.out.talk("Start it now: rota service start")
    if plan.file.suffix == ".service":
        desk.out.talk(LINGER)


@service_app.command()
def start(context: typer.Context, manager: Manager = None, dry_run: DryRun = False) -> None:
    """Start the service.

    Example: rota service start
    """
    desk = CliContext(context)
    plan = _installed(desk, manager)
    _carry_out(desk, plan, plan.start, dry_run=dry_run)
    desk.out.line("Started.")


@service_app.command()
def stop(context: typer.Context, manager: Manager = None, dry_run: DryRun = False) -> None:
    """Stop the service in order: what runs may end first, within the drain.

    Example: rota service stop
    """
    desk = CliContext(context)
    plan = _installed(desk, manager)
    _carry_out(desk, plan, plan.stop, dry_run=dry_run)
    desk.out.line("Stopped.")


@service_app.command()
def status(context: typer.Context, manager: Manager = None) -> None:
    """Tell whether the service is installed and runs; exits with 1 if it does not run.

    Example: rota service status
    """
    desk = CliContext(context)
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


@service_app.command()
def logs(
    context: typer.Context,
    lines: Annotated[str, typer.Option("--lines", "-n", metavar="N", help="At most N.")] = "100",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as they come.")] = False,
    manager: Manager = None,
) -> None:
    """Show what the service has logged last.

    Example: rota service logs -f
    """
    desk = CliContext(context)
    plan = _installed(desk, manager)
    code = _run(plan.logs(whole_number("lines", lines, 1, MOST_LINES), follow))
    if code:
        raise typer.Exit(1)


def _plan(desk: CliContext, manager: str | None) -> _Plan:
    name = manager or ("launchd" if sys.platform == "darwin" else "systemd")
    if name not in MANAGERS:
        raise Invalid("manager", name, f"use {' or '.join(MANAGERS)}")
    settings = desk.settings()
    service = ServiceUnit(
        words=[*_rota(), "up"],
        home=settings.home,
        usual=settings.home == home_folder("~/.rota"),
        drain=settings.drain,
        store=desk.invocation.store,
        path=search_path(),
    )
    return MANAGERS[name](service)


def _installed(desk: CliContext, manager: str | None) -> _Plan:
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
    desk: CliContext, plan: _Plan, lines: Sequence[Sequence[str]], *, dry_run: bool, text: str = ""
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


BASH = f"""\
_rota() {{
    local IFS=$'\\n'
    COMPREPLY=($(rota {COMPLETE} "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null))
    compopt -o nosort 2>/dev/null
    if declare -F __ltrim_colon_completions >/dev/null; then
        __ltrim_colon_completions "${{COMP_WORDS[COMP_CWORD]}}"
    fi
}}
complete -o default -F _rota rota
"""
ZSH = f"""\
#compdef rota
_rota() {{
    local -a found
    found=("${{(@f)$(rota {COMPLETE} "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}}
if [[ "$funcstack[1]" == _rota ]]; then _rota "$@"; else compdef _rota rota; fi
"""
FISH = f"""\
function __rota_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found (rota {COMPLETE} $words[2..-1] 2>/dev/null)
    if set -q found[1]
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c rota -f -a '(__rota_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Write a script that lets a shell complete commands, options and names of tasks.

    Bash and zsh read it when they start (zsh after compinit), fish has a folder for it.

    Example: rota completion fish > ~/.config/fish/completions/rota.fish
    """
    if shell not in SCRIPTS:
        raise Invalid("shell", shell, f"choose one of {', '.join(SCRIPTS)}")
    sys.stdout.write(SCRIPTS[shell])


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(service_app, name="service")
    app.command("completion")(completion)
