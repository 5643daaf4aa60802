"""`rota doctor` and `rota check`."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple
from zoneinfo import available_timezones

import typer

from rota.app.addresses import hidden_password
from rota.app.composition import database_exists, open_store_read_only
from rota.app.discovery import PLACE, find_daemon_address
from rota.app.file_modes import open_home, permissive
from rota.app.plugins import find_plugins, load_plugins, read_plugin_settings
from rota.app.secrets import GATEWAY, SECRETS, LocalSecretStore
from rota.app.settings import FILE_NAME, Settings, read_settings, unknown_variables
from rota.app.sites import (
    NOT_ON_PATH,
    ExecutorTrial,
    LocalSiteChecker,
    all_missing_programs,
    search_path,
)
from rota.cli.context import CliContext
from rota.cli.remote import ADMIN_KEY, HttpClient, find_daemon
from rota.errors import RotaError
from rota.flow.observe.status import WarningThresholds, view_status
from rota.flow.observe.time_text import count_text, duration_text
from rota.flow.observe.verification import verify
from rota.gateway.client import GatewayStatus, gateway_status
from rota.gateway.secrets import KEY
from rota.model.instants import from_micros
from rota.model.problems import DISK_FULL, FAILING, UNWRITABLE
from rota.ports.host import SecretInfo
from rota.runtime.clock import SystemClock
from rota.store.sqlite.file_modes import narrow
from rota.store.store import Store
from rota.timing.durations import format_duration

MAX_LISTED = 1_000
MAX_NAMED = 5
DAEMON, TERMINAL = "the daemon", "this terminal"
NO_DAEMON = "No daemon is running; programs were searched on the PATH of this terminal: {}"


class MissingProgramRow(NamedTuple):
    """A missing program or folder of tasks, and what to do."""

    sentence: str
    advice: str


class MissingProgramReport(NamedTuple):
    """Missing programs and folders, and who searched for them."""

    lacks: Sequence[MissingProgramRow]
    by: str

    @property
    def note(self) -> str | None:
        """A note about the PATH that was searched, if a program is missing."""
        missing = any(NOT_ON_PATH in lack.sentence for lack in self.lacks)
        return NO_DAEMON.format(search_path()) if missing and self.by == TERMINAL else None


def ask_daemon(daemon: HttpClient) -> MissingProgramReport:
    """Return what the daemon's machine lacks for the enabled tasks."""
    found: dict[str, list[str]] = {}
    before: int | None = None
    while True:
        page = {} if before is None else {"before": before}
        wanted = {"state": "enabled", "limit": MAX_LISTED, **page}
        listed = daemon.call("GET", "/v1/tasks", wanted)
        for task in listed["tasks"]:
            for lack in daemon.call("GET", f"/v1/tasks/{task['id']}", {})["missing_programs"]:
                found.setdefault(lack, []).append(task["name"])
        before = listed["next"]
        if before is None:
            return _looked(found, DAEMON)


async def check_here(store: Store, settings: Settings) -> MissingProgramReport:
    """Return what this machine lacks for the enabled tasks."""
    found = await all_missing_programs(store, settings)
    named = {str(lack): [task.name for task in tasks] for lack, tasks in found.items()}
    return _looked(named, TERMINAL)


def _looked(found: dict[str, list[str]], by: str) -> MissingProgramReport:
    return MissingProgramReport(
        [_lack(text, sorted(tasks), by) for text, tasks in sorted(found.items())], by
    )


def _lack(text: str, tasks: list[str], by: str) -> MissingProgramRow:
    what, _, advice = text.partition(": ")
    where = f" of {by}" if what.endswith(NOT_ON_PATH) else ""
    return MissingProgramRow(f"{what}{where}, needed by {_named(tasks)}", advice)


def _named(tasks: list[str]) -> str:
    more = len(tasks) - MAX_NAMED
    named = ", ".join(tasks[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"the task{'' if len(tasks) == 1 else 's'} {named}"


class GatewayReport(NamedTuple):
    """The state of the gateway and its secrets."""

    seen: GatewayStatus | None
    secrets: Sequence[SecretInfo]


def gateway_record(known: GatewayReport) -> dict[str, object]:
    """Return the state of the gateway as a record, without values of secrets."""
    seen = known.seen
    return {
        "running": seen is not None,
        "answers": seen is not None and seen.attempts is not None,
        "pid": None if seen is None else seen.pid,
        "since": None if seen is None else seen.since.isoformat(),
        "socket": None if seen is None else seen.socket,
        "attempts": None if seen is None else seen.attempts,
        "secrets": [
            {
                "name": secret.name,
                "source": secret.source,
                "readable": secret.problem is None,
                "problem": secret.problem,
            }
            for secret in known.secrets
        ],
    }


def gateway_lines(known: GatewayReport, now: datetime) -> Iterator[str]:
    """Yield the state of the gateway and of each secret as lines."""
    yield "Gateway:"
    yield f"  {_state(known.seen, now)}"
    for secret in known.secrets:
        sign, problem = ("✓", "") if secret.problem is None else ("✗", f": {secret.problem}")
        yield f"  {sign} {secret.name}, {secret.source}{problem}"


def _state(seen: GatewayStatus | None, now: datetime) -> str:
    if seen is None:
        return "not running; it starts when an agent needs it"
    age = duration_text(now - seen.since)
    if seen.attempts is None:
        return f"✗ process {seen.pid}, running for {age}, does not respond at {seen.socket}"
    version = "" if seen.current else " of another version"
    grants = count_text(seen.attempts, "attempt")
    return f"✓ process {seen.pid}{version}, running for {age}, used by {grants} ({seen.socket})"


OTHERS = 0o077
MIN_FREE = 500 * 1024 * 1024
MAX_WAL = 256 * 1024 * 1024
MAX_VERIFIED = 256 * 1024 * 1024
"""Size of a database up to which its invariants are checked, too; see `rota verify`."""
MIN_ZONES = 300
MAX_DRIFT = timedelta(seconds=5)
EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)
MEBIBYTE = 1024 * 1024
ADVICE = {
    UNWRITABLE: "correct that: the daemon retries automatically",
    DISK_FULL: "free disk space: the daemon continues automatically",
    FAILING: "see the log of the daemon",
}
"""Solutions for problems that the daemon reports."""
NOTHING = MissingProgramReport([], DAEMON)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorProblem:
    """A problem, its solution, and a function that fixes it if that is safe."""

    code: str
    sentence: str
    advice: str
    fix: Callable[[], object] | None = None


def doctor(
    context: typer.Context,
    fix: Annotated[bool, typer.Option("--fix", help="Fix problems that need no decision")] = False,
) -> None:
    """Check the installation for problems: files, settings, database, clock, queue.

    Also shows programs and folders of tasks that were not found, which executors are available,
    what the others need, and the state of the gateway.

    Exits with 0 if there is no problem or all were fixed, and with 1 otherwise.

    Example: rota doctor
    """
    cli = CliContext(context)
    settings, faults = _read_all(cli)
    found = [_wrong("settings", error, "correct it, then run `rota check`") for error in faults]
    found += [
        _wrong("settings", f"{name} is not a setting and has no effect", "unset it")
        for name in unknown_variables()
    ]
    executors: list[ExecutorTrial] = []
    gate = GatewayReport(None, [])
    looked = NOTHING
    if settings is not None:
        found += [*_absence(cli, settings), *examine(settings), *_daemon(settings)]
        looked = _programs(settings)
        found += [_wrong("programs", *lack) for lack in looked.lacks]
        gate, wrong = _gateway(settings)
        found += wrong
        try:
            executors = LocalSiteChecker(settings).try_all()
        except RotaError as error:
            found.append(_wrong("executors", str(error), "correct it, then run this again"))
        advice = "correct or uninstall its package, then restart the daemon"
        found += [_wrong("plugins", str(each), advice) for each in load_plugins(settings).problems]
    fixed = [_fix(finding) if fix else False for finding in found]
    record: dict[str, object] = {"ok": all(fixed), "findings": _records(found, fixed)}
    record |= {"executors": executor_records(executors), "gateway": gateway_record(gate)}
    cli.out.record(record)
    for finding, done in zip(found, fixed, strict=True):
        cli.out.words(f"✗ {finding.sentence}", 2)
        cli.out.words(f"  {'fixed' if done else 'solution: ' + finding.advice}", 2)
    if looked.note is not None:
        cli.out.words(looked.note)
    if not found:
        cli.out.line("No problems found.")
    elif not fix and any(finding.fix is not None for finding in found):
        cli.out.talk("Some problems can be fixed with: rota doctor --fix")
    for line in (*executor_lines(executors), *gateway_lines(gate, SystemClock().now())):
        cli.out.words(line, 4)
    if not all(fixed):
        raise typer.Exit(1)


def _absence(cli: CliContext, settings: Settings) -> Iterator[DoctorProblem]:
    """Check that a named home or database exists."""
    lost = cli.absence(settings)
    if lost is not None and lost.named:
        what, _, advice = lost.sentence.partition(": ")
        yield _wrong("home", what, advice)


def examine(settings: Settings) -> list[DoctorProblem]:
    """Return the problems of an installation with valid settings."""
    found = [*_files(settings), *_room(settings), *_time(settings)]
    if settings.store == "memory:" or not database_exists(settings):
        return found
    try:
        found += asyncio.run(_database(settings))
    except RotaError as error:
        found.append(_wrong("database", str(error), "correct that first, then run this again"))
    return found


def _gateway(settings: Settings) -> tuple[GatewayReport, list[DoctorProblem]]:
    """Check the gateway and its secrets, without changing them."""
    folder = settings.home.absolute()
    seen, key = gateway_status(folder / GATEWAY), folder / SECRETS / KEY
    if key.exists() and key.stat().st_mode & OTHERS:
        return GatewayReport(seen, []), [_private(key, 0o600)]
    secrets = LocalSecretStore(settings)
    try:
        listed = asyncio.run(secrets.list_secrets())
    except RotaError as error:
        return GatewayReport(seen, []), [
            _wrong("gateway", str(error), "correct it, then run this again")
        ]
    found = [
        _wrong("secrets", f"the secret {each.name} of {each.source}: {each.problem}", "correct it")
        for each in listed
        if each.problem is not None and each.source.startswith("file:")
    ]
    if secrets.trouble is not None:
        found.append(_wrong("secrets", secrets.trouble, "until then agents have no secrets"))
    if seen is not None and seen.attempts is None:
        sentence = f"the gateway (process {seen.pid}) does not respond"
        advice = f"kill it, and the daemon starts a new one: kill -9 {seen.pid}"
        found.append(_wrong("gateway", sentence, advice))
    return GatewayReport(seen, listed), found


def _wrong(code: str, sentence: str, advice: str) -> DoctorProblem:
    return DoctorProblem(code=code, sentence=sentence, advice=advice)


def _fix(finding: DoctorProblem) -> bool:
    if finding.fix is None:
        return False
    try:
        return finding.fix() is not False
    except OSError:
        return False


def _records(found: list[DoctorProblem], fixed: list[bool]) -> list[dict[str, object]]:
    return [
        {
            "code": finding.code,
            "message": finding.sentence,
            "to_do": finding.advice,
            "mendable": finding.fix is not None,
            "mended": done,
        }
        for finding, done in zip(found, fixed, strict=True)
    ]


def _files(settings: Settings) -> Iterator[DoctorProblem]:
    """Check the home folder: owner, permissions, stale files."""
    home = settings.home
    if not home.exists():
        return
    for path in (home, home / ADMIN_KEY):
        if path.exists() and path.stat().st_uid != os.geteuid():
            sentence = f"{path} belongs to another user"
            yield _wrong(
                "owner", sentence, "change its owner to the user that runs Rota, with chown"
            )
    if (shared := open_home(home)) is not None:
        sentence = f"other users can read {shared}, which is not used by Rota alone"
        yield _wrong("permissions", sentence, "use a separate folder for --home")
    for own in permissive(settings):
        yield _private(own.path, own.allowed)
    place = home / PLACE
    if place.exists() and find_daemon(home) is None:
        yield _unheard(place)


def _private(path: Path, mode: int) -> DoctorProblem:
    return DoctorProblem(
        code="permissions",
        sentence=f"other users can read {path}",
        advice=f"chmod {mode:o} {path}",
        fix=partial(narrow, str(path), mode),
    )


def _unheard(place: Path) -> DoctorProblem:
    word = find_daemon_address(place.parent)
    if word is None:
        sentence = f"{place} names a daemon that is not running"
        advice = f"remove it: rm {place}"
        return DoctorProblem(code="stale_api", sentence=sentence, advice=advice, fix=place.unlink)
    sentence = f"the daemon of {place} (process {word.pid}) does not respond"
    return _wrong("no_answer", sentence, "see its log, or `rota service logs` for a service")


def _room(settings: Settings) -> Iterator[DoctorProblem]:
    """Check the disk of the database."""
    file = _file(settings)
    if file is None or not file.parent.exists():
        return
    free = shutil.disk_usage(file.parent).free
    if free < MIN_FREE:
        sentence = f"only {free // MEBIBYTE:,} MiB are free on the disk of {file}"
        yield _wrong("disk", sentence, "free disk space: without it Rota cannot record anything")
    log = Path(f"{file}-wal")
    if log.exists() and log.stat().st_size > MAX_WAL:
        sentence = f"{log} has grown to {log.stat().st_size // MEBIBYTE:,} MiB"
        advice = "a program keeps an old transaction open: end that program"
        yield _wrong("write_ahead_log", sentence, advice)


def _file(settings: Settings) -> Path | None:
    if not settings.store.startswith("sqlite:///"):
        return None
    return Path(settings.store.removeprefix("sqlite:///")).expanduser()


def _time(settings: Settings) -> Iterator[DoctorProblem]:
    """Check the clock and the time zone data."""
    now = SystemClock().now()
    file = _file(settings)
    newest = EARLIEST
    if file is not None and file.exists():
        newest = max(newest, datetime.fromtimestamp(file.stat().st_mtime, UTC))
    if now < newest - MAX_DRIFT:
        sentence = f"the clock shows {now:%Y-%m-%d %H:%M} UTC, which is before the last use"
        yield _wrong("clock", sentence, "set the clock, and use NTP")
    known = len(available_timezones())
    if known < MIN_ZONES:
        sentence = f"only {known} time zones are installed"
        yield _wrong("zone_data", sentence, "install the system's tzdata, or `pip install tzdata`")


async def _database(settings: Settings) -> list[DoctorProblem]:
    bounds = WarningThresholds(queue=settings.queue_warning, running=settings.running_warning)
    async with open_store_read_only(settings) as store:
        return [
            *_drift(store),
            *await _queue(store, bounds),
            *await _record_of(store, settings),
        ]


def _drift(store: Store) -> Iterator[DoctorProblem]:
    drift = from_micros(store.now()) - SystemClock().now()
    if abs(drift) > MAX_DRIFT:
        sentence = (
            f"the clock of the database differs by {abs(drift).total_seconds():.0f} s from this one"
        )
        yield _wrong(
            "clock", sentence, "use NTP on both machines; Rota uses the clock of the database"
        )


async def _queue(store: Store, bounds: WarningThresholds) -> list[DoctorProblem]:
    seen = await view_status(store, bounds)
    return [_wrong(w.code, w.sentence, "see `rota status`") for w in seen.warnings]


def _daemon(settings: Settings) -> list[DoctorProblem]:
    """Return the problems that the daemon reports."""
    with suppress(RotaError):  # a daemon that does not respond is reported elsewhere
        daemon = find_daemon(settings.home)
        if daemon is not None:
            with closing(daemon):
                warnings = daemon.call("GET", "/v1/status", {})["warnings"]
            known = [w for w in warnings if w["code"] in ADVICE]
            return [_wrong(w["code"], w["message"], ADVICE[w["code"]]) for w in known]
    return []


def _programs(settings: Settings) -> MissingProgramReport:
    """Search programs and folders of tasks, through the daemon if it runs, else here."""
    if not database_exists(settings):
        return NOTHING
    with suppress(RotaError):  # a daemon that does not respond is reported elsewhere
        daemon = find_daemon(settings.home)
        if daemon is not None:
            with closing(daemon):
                return ask_daemon(daemon)
        if settings.store != "memory:":
            return asyncio.run(_programs_here(settings))
    return NOTHING


async def _programs_here(settings: Settings) -> MissingProgramReport:
    async with open_store_read_only(settings) as store:
        return await check_here(store, settings)


async def _record_of(store: Store, settings: Settings) -> list[DoctorProblem]:
    file = _file(settings)
    if file is None or file.stat().st_size > MAX_VERIFIED:
        return []
    judged = await verify(store)
    return [
        _wrong(
            "record",
            f"the invariant {check.invariant} is violated {check.violated} times",
            "rota verify",
        )
        for check in judged.checks
        if check.violated
    ]


def check(context: typer.Context) -> None:
    """Check the settings and show all errors.

    Exits with 2 if there is an error.

    Example: rota check
    """
    cli = CliContext(context)
    settings, faults = _read_all(cli)
    warnings = [f"{name} is not a setting and has no effect" for name in unknown_variables()]
    shown = {} if settings is None else _shown(settings)
    cli.out.record({"ok": not faults, "faults": faults, "warnings": warnings, "settings": shown})
    for warning in warnings:
        cli.out.line(f"Note: {warning}.")
    if settings is None:
        cli.out.line(f"{count_text(len(faults), 'error')} in the settings:")
        for error in faults:
            cli.out.line(f"  {error}")
        raise typer.Exit(2)
    source = "read" if settings.file.exists() else "not found, using defaults"
    cli.out.line(f"The settings are valid ({FILE_NAME}: {source}).")
    cli.out.pairs(
        [
            (name, f"{_written(value)}{'  (set)' if name in settings.given else ''}")
            for name, value in shown.items()
        ]
    )


def _read_all(desk: CliContext) -> tuple[Settings | None, list[str]]:
    """Return the settings, or None if there are errors, and the errors, with those of plug-ins."""
    settings, faults = read_settings(desk.invocation.home, desk.invocation.store)
    if settings is not None:
        faults = [*read_plugin_settings(settings, find_plugins()).faults]
    return (None if faults else settings), faults


def _shown(settings: Settings) -> dict[str, str | int | bool]:
    hidden = {"given", "plugins", "plugin_variables"}
    values = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name not in hidden}
    for (kind, name), own in load_plugins(settings).settings.items():
        for one in fields(own) if is_dataclass(own) else ():
            values[f"{kind}s.{name}.{one.name}"] = getattr(own, one.name)
    return {name: _plain(value) for name, value in values.items()}


def _written(value: str | int | bool) -> str:
    """Return a value in the syntax of the settings file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(value: object) -> str | int | bool:
    if isinstance(value, timedelta):
        return format_duration(value) if value else "0s"
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, (tuple, Mapping)):
        return ", ".join(value or ())
    return (
        hidden_password(value)
        if isinstance(value, str)
        else bool(value)
        if isinstance(value, bool)
        else int(str(value))
    )


def executor_records(tried: Sequence[ExecutorTrial]) -> list[dict[str, object]]:
    """Return the availability of each executor as records."""
    return [
        {
            "name": each.executor.name,
            "available": each.available,
            "certain_kill": each.executor.certain_kill,
            "missing": [
                {
                    "what": one.what,
                    "where": one.where,
                    "to_do": one.remedy,
                    "needed": one.needed,
                }
                for one in each.missing
            ],
        }
        for each in tried
    ]


def executor_lines(tried: Sequence[ExecutorTrial]) -> Iterator[str]:
    """Yield the availability of each executor, and what the others need.

    What several executors need comes once, after them.
    """
    if tried:
        yield "Executors:"
    lacking: dict[str, list[str]] = {}
    for each in tried:
        for one in each.missing:
            words = f"{'needs' if one.needed else 'without'} {one}"
            lacking.setdefault(words, []).append(each.executor.name)
    for each in tried:
        name = each.executor.name
        if each.available:
            unless = (
                ""
                if each.executor.certain_kill
                else ", unless a keeper and its guard are both killed"
            )
            yield f"  ✓ {name:<9}  processes can be stopped reliably{unless}"
        else:
            yield f"  ✗ {name:<9}  not available on this machine"
        own = [words for words, names in lacking.items() if names == [each.executor.name]]
        yield from (f"      {words}" for words in own)
    for words, names in lacking.items():
        if len(names) > 1:
            yield f"  {', '.join(names)}: {words}"


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("doctor")(doctor)
    app.command("check")(check)
