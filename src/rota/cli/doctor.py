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
MOST_NAMED = 5
DAEMON, TERMINAL = "the daemon", "this terminal"
NO_DAEMON = "No daemon answers, so programs were looked for on the PATH of this terminal: {}"


class MissingProgramRow(NamedTuple):
    """Something that tasks name and that is missing, and what to do."""

    sentence: str
    advice: str


class MissingProgramReport(NamedTuple):
    """What was found missing, and by whom."""

    lacks: Sequence[MissingProgramRow]
    by: str

    @property
    def note(self) -> str | None:
        """What must be known of the PATH on which programs were looked for, if any is missing."""
        missing = any(NOT_ON_PATH in lack.sentence for lack in self.lacks)
        return NO_DAEMON.format(search_path()) if missing and self.by == TERMINAL else None


def ask_daemon(daemon: HttpClient) -> MissingProgramReport:
    """Return what a daemon lacks for the tasks that are enabled."""
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
    """Return what would be missing for tasks if they were started from here."""
    found = await all_missing_programs(store, settings)
    named = {str(lack): [task.name for task in tasks] for lack, tasks in found.items()}
    return _looked(named, TERMINAL)


def _looked(found: dict[str, list[str]], by: str) -> MissingProgramReport:
    return MissingProgramReport(
        [_lack(told, sorted(tasks), by) for told, tasks in sorted(found.items())], by
    )


def _lack(told: str, tasks: list[str], by: str) -> MissingProgramRow:
    what, _, advice = told.partition(": ")
    where = f" of {by}" if what.endswith(NOT_ON_PATH) else ""
    return MissingProgramRow(f"{what}{where}, wanted by {_named(tasks)}", advice)


def _named(tasks: list[str]) -> str:
    more = len(tasks) - MOST_NAMED
    named = ", ".join(tasks[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"the task{'' if len(tasks) == 1 else 's'} {named}"


class GatewayReport(NamedTuple):
    """What is known of a gateway and of the secrets it is for."""

    seen: GatewayStatus | None
    secrets: Sequence[SecretInfo]


def gateway_record(known: GatewayReport) -> dict[str, object]:
    """Return what is known of the gateway; secrets by name, and never their values."""
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
    """Yield how the gateway is doing, and each secret it would show."""
    yield "The gateway to providers:"
    yield f"  {_state(known.seen, now)}"
    for secret in known.secrets:
        sign, told = ("✓", "") if secret.problem is None else ("✗", f": {secret.problem}")
        yield f"  {sign} {secret.name}, {secret.source}{told}"


def _state(seen: GatewayStatus | None, now: datetime) -> str:
    if seen is None:
        return "does not run; it starts when an agent needs it"
    age = duration_text(now - seen.since)
    if seen.attempts is None:
        return f"✗ process {seen.pid}, up for {age}, does not answer at {seen.socket}"
    kind = "" if seen.current else " of another version"
    who = count_text(seen.attempts, "attempt")
    return f"✓ process {seen.pid}{kind}, up for {age}, open to {who} ({seen.socket})"


OTHERS = 0o077
LEAST_FREE = 500 * 1024 * 1024
LARGEST_LOG = 256 * 1024 * 1024
LARGEST_LOOKED_AT = 256 * 1024 * 1024
"""Bytes of a file up to which everything on record is judged too; beyond, `rota verify` does it."""
FEWEST_ZONES = 300
LARGEST_DRIFT = timedelta(seconds=5)
EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)
MEBIBYTE = 1024 * 1024
ADVICE = {
    UNWRITABLE: "mend that: the daemon tries again by itself",
    DISK_FULL: "free some room: the daemon goes on by itself",
    FAILING: "see its log",
}
"""What a daemon may say that it cannot do."""
NOTHING = MissingProgramReport([], DAEMON)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorProblem:
    """Something that is wrong, what to do, and how to mend it here if that is safe."""

    code: str
    sentence: str
    advice: str
    mend: Callable[[], object] | None = None


def doctor(
    context: typer.Context,
    fix: Annotated[
        bool, typer.Option("--fix", help="Mend what can be mended without a decision.")
    ] = False,
) -> None:
    """Look for what is wrong with this installation: files, settings, database, clock, queue.

    It also tells which programs and folders of tasks cannot be found, where programs can run here,
    what is missing for the rest, and how the gateway to providers is doing.

    Exits with 0 if nothing was found, or everything found was mended, and with 1 otherwise.

    Example: rota doctor
    """
    desk = CliContext(context)
    settings, faults = _read_all(desk)
    found = [_wrong("settings", fault, "correct it, then `rota check`") for fault in faults]
    found += [
        _wrong("settings", f"{name} is not a setting and has no effect", "unset it")
        for name in unknown_variables()
    ]
    executors: list[ExecutorTrial] = []
    gate = GatewayReport(None, [])
    looked = NOTHING
    if settings is not None:
        found += [*_absence(desk, settings), *examine(settings), *_daemon(settings)]
        looked = _programs(settings)
        found += [_wrong("programs", *lack) for lack in looked.lacks]
        gate, wrong = _gateway(settings)
        found += wrong
        try:
            executors = LocalSiteChecker(settings).try_all()
        except RotaError as fault:
            found.append(_wrong("executors", str(fault), "correct it, then look again"))
        advice = "correct or remove what installed it, then start the daemon again"
        found += [_wrong("plugins", str(each), advice) for each in load_plugins(settings).problems]
    mended = [_mended(finding) if fix else False for finding in found]
    told: dict[str, object] = {"ok": all(mended), "findings": _records(found, mended)}
    told |= {"executors": executor_records(executors), "gateway": gateway_record(gate)}
    desk.out.record(told)
    for finding, done in zip(found, mended, strict=True):
        desk.out.words(f"✗ {finding.sentence}", 2)
        desk.out.words(f"  {'mended' if done else 'to do: ' + finding.advice}", 2)
    if looked.note is not None:
        desk.out.words(looked.note)
    if not found:
        desk.out.line("Nothing is wrong.")
    elif not fix and any(finding.mend is not None for finding in found):
        desk.out.talk("Some of it can be mended here: rota doctor --fix")
    for line in (*executor_lines(executors), *gateway_lines(gate, SystemClock().now())):
        desk.out.words(line, 4)
    if not all(mended):
        raise typer.Exit(1)


def _absence(desk: CliContext, settings: Settings) -> Iterator[DoctorProblem]:
    """Look whether there is a database where somebody says that there is one."""
    lost = desk.absence(settings)
    if lost is not None and lost.named:
        what, _, advice = lost.sentence.partition(": ")
        yield _wrong("home", what, advice)


def examine(settings: Settings) -> list[DoctorProblem]:
    """Return everything that is wrong with an installation whose settings are right."""
    found = [*_files(settings), *_room(settings), *_time(settings)]
    if settings.store == "memory:" or not database_exists(settings):
        return found
    try:
        found += asyncio.run(_database(settings))
    except RotaError as fault:
        found.append(_wrong("database", str(fault), "mend that first, then look again"))
    return found


def _gateway(settings: Settings) -> tuple[GatewayReport, list[DoctorProblem]]:
    """Look at the gateway and at what it would show to providers; neither is touched."""
    folder = settings.home.absolute()
    seen, key = gateway_status(folder / GATEWAY), folder / SECRETS / KEY
    if key.exists() and key.stat().st_mode & OTHERS:
        return GatewayReport(seen, []), [_private(key, 0o600)]
    secrets = LocalSecretStore(settings)
    try:
        listed = asyncio.run(secrets.list_secrets())
    except RotaError as fault:
        return GatewayReport(seen, []), [
            _wrong("gateway", str(fault), "correct it, then look again")
        ]
    found = [
        _wrong("secrets", f"the secret {each.name} of {each.source}: {each.problem}", "mend that")
        for each in listed
        if each.problem is not None and each.source.startswith("file:")
    ]
    if secrets.trouble is not None:
        found.append(_wrong("secrets", secrets.trouble, "agents do without them until then"))
    if seen is not None and seen.attempts is None:
        sentence = f"the gateway (process {seen.pid}) does not answer"
        advice = f"end it, and the daemon starts another one: kill -9 {seen.pid}"
        found.append(_wrong("gateway", sentence, advice))
    return GatewayReport(seen, listed), found


def _wrong(code: str, sentence: str, advice: str) -> DoctorProblem:
    return DoctorProblem(code=code, sentence=sentence, advice=advice)


def _mended(finding: DoctorProblem) -> bool:
    if finding.mend is None:
        return False
    try:
        return finding.mend() is not False
    except OSError:
        return False


def _records(found: list[DoctorProblem], mended: list[bool]) -> list[dict[str, object]]:
    return [
        {
            "code": finding.code,
            "message": finding.sentence,
            "to_do": finding.advice,
            "mendable": finding.mend is not None,
            "mended": done,
        }
        for finding, done in zip(found, mended, strict=True)
    ]


def _files(settings: Settings) -> Iterator[DoctorProblem]:
    """Look at the home folder: whose it is, who may look into it, what was left behind."""
    home = settings.home
    if not home.exists():
        return
    for path in (home, home / ADMIN_KEY):
        if path.exists() and path.stat().st_uid != os.geteuid():
            sentence = f"{path} belongs to somebody else"
            yield _wrong("owner", sentence, "give it to the user that runs Rota: chown")
    if (shared := open_home(home)) is not None:
        sentence = f"others may look into {shared}, which is not Rota's alone"
        yield _wrong("permissions", sentence, "give --home a folder of its own")
    for own in permissive(settings):
        yield _private(own.path, own.allowed)
    place = home / PLACE
    if place.exists() and find_daemon(home) is None:
        yield _unheard(place)


def _private(path: Path, mode: int) -> DoctorProblem:
    return DoctorProblem(
        code="permissions",
        sentence=f"others may read {path}",
        advice=f"chmod {mode:o} {path}",
        mend=partial(narrow, str(path), mode),
    )


def _unheard(place: Path) -> DoctorProblem:
    word = find_daemon_address(place.parent)
    if word is None:
        sentence = f"{place} tells of a daemon that is not there"
        advice = f"remove it: rm {place}"
        return DoctorProblem(code="stale_api", sentence=sentence, advice=advice, mend=place.unlink)
    sentence = f"the daemon of {place} (process {word.pid}) does not answer"
    return _wrong("no_answer", sentence, "see its log; `rota service logs` if it is a service")


def _room(settings: Settings) -> Iterator[DoctorProblem]:
    """Look at the disk that the database is on."""
    file = _file(settings)
    if file is None or not file.parent.exists():
        return
    free = shutil.disk_usage(file.parent).free
    if free < LEAST_FREE:
        sentence = f"only {free // MEBIBYTE:,} MiB are free on the disk of {file}"
        yield _wrong("disk", sentence, "free some room: without it nothing can be written down")
    log = Path(f"{file}-wal")
    if log.exists() and log.stat().st_size > LARGEST_LOG:
        sentence = f"{log} has grown to {log.stat().st_size // MEBIBYTE:,} MiB"
        advice = "some program holds an old view of the database open: end it"
        yield _wrong("write_ahead_log", sentence, advice)


def _file(settings: Settings) -> Path | None:
    if not settings.store.startswith("sqlite:///"):
        return None
    return Path(settings.store.removeprefix("sqlite:///")).expanduser()


def _time(settings: Settings) -> Iterator[DoctorProblem]:
    """Look at the clock and at the zone data."""
    now = SystemClock().now()
    file = _file(settings)
    newest = EARLIEST
    if file is not None and file.exists():
        newest = max(newest, datetime.fromtimestamp(file.stat().st_mtime, UTC))
    if now < newest - LARGEST_DRIFT:
        sentence = f"the clock says {now:%Y-%m-%d %H:%M} UTC, which is before what it said already"
        yield _wrong("clock", sentence, "set the clock, and keep it set by NTP")
    known = len(available_timezones())
    if known < FEWEST_ZONES:
        sentence = f"only {known} time zones are known here"
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
    if abs(drift) > LARGEST_DRIFT:
        sentence = f"the database's clock is {abs(drift).total_seconds():.0f} s away from this one"
        yield _wrong(
            "clock", sentence, "keep both set by NTP; the database's is the one that counts"
        )


async def _queue(store: Store, bounds: WarningThresholds) -> list[DoctorProblem]:
    seen = await view_status(store, bounds)
    return [_wrong(w.code, w.sentence, "see `rota status`") for w in seen.warnings]


def _daemon(settings: Settings) -> list[DoctorProblem]:
    """Ask the daemon what it cannot do, which only it knows."""
    with suppress(RotaError):  # what does not answer is told of already
        daemon = find_daemon(settings.home)
        if daemon is not None:
            with closing(daemon):
                warnings = daemon.call("GET", "/v1/status", {})["warnings"]
            told = [w for w in warnings if w["code"] in ADVICE]
            return [_wrong(w["code"], w["message"], ADVICE[w["code"]]) for w in told]
    return []


def _programs(settings: Settings) -> MissingProgramReport:
    """Look for what tasks name; the daemon knows what it finds, and without one this terminal."""
    if not database_exists(settings):
        return NOTHING
    with suppress(RotaError):  # what does not answer is told of already
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
    if file is None or file.stat().st_size > LARGEST_LOOKED_AT:
        return []
    judged = await verify(store)
    return [
        _wrong("record", f"{check.invariant} does not hold {check.violated} times", "rota verify")
        for check in judged.checks
        if check.violated
    ]


def check(context: typer.Context) -> None:
    """Read the settings and say everything that is wrong with them.

    Exits with 2 if something is wrong.

    Example: rota check
    """
    desk = CliContext(context)
    settings, faults = _read_all(desk)
    warnings = [f"{name} is not a setting and has no effect" for name in unknown_variables()]
    shown = {} if settings is None else _shown(settings)
    desk.out.record({"ok": not faults, "faults": faults, "warnings": warnings, "settings": shown})
    for warning in warnings:
        desk.out.line(f"Note: {warning}.")
    if settings is None:
        desk.out.line(f"{len(faults)} wrong in the settings:")
        for fault in faults:
            desk.out.line(f"  {fault}")
        raise typer.Exit(2)
    there = "read" if settings.file.exists() else "not there, defaults hold"
    desk.out.line(f"The settings are right ({FILE_NAME}: {there}).")
    desk.out.pairs(
        [
            (name, f"{_written(value)}{'  (set)' if name in settings.given else ''}")
            for name, value in shown.items()
        ]
    )


def _read_all(desk: CliContext) -> tuple[Settings | None, list[str]]:
    """Return the settings, None if any is wrong, those of plug-ins included, and what is wrong."""
    settings, faults = read_settings(desk.invocation.home, desk.invocation.store)
    if settings is not None:
        faults = [*read_plugin_settings(settings, find_plugins()).faults]
    return (None if faults else settings), faults


def _shown(settings: Settings) -> dict[str, str | int | bool]:
    hidden = {"given", "plugins", "plugin_variables"}
    values = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name not in hidden}
    for (kind, name), told in load_plugins(settings).settings.items():
        for one in fields(told) if is_dataclass(told) else ():
            values[f"{kind}s.{name}.{one.name}"] = getattr(told, one.name)
    return {name: _plain(value) for name, value in values.items()}


def _written(value: str | int | bool) -> str:
    """Return a value as it stands in the file."""
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
    """Return what is known of each executor."""
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
    """Yield for each executor whether it can be had, and what to do where it cannot.

    What several lack is told once, below them.
    """
    if tried:
        yield "Programs can run in:"
    lacking: dict[str, list[str]] = {}
    for each in tried:
        for one in each.missing:
            words = f"{'needs' if one.needed else 'without'} {one}"
            lacking.setdefault(words, []).append(each.executor.name)
    for each in tried:
        name = each.executor.name
        if each.available:
            unless = (
                "" if each.executor.certain_kill else ", unless a keeper and its guard are killed"
            )
            yield f"  ✓ {name:<9}  every stop is certain{unless}"
        else:
            yield f"  ✗ {name:<9}  cannot be had here"
        own = [words for words, names in lacking.items() if names == [each.executor.name]]
        yield from (f"      {words}" for words in own)
    for words, names in lacking.items():
        if len(names) > 1:
            yield f"  {', '.join(names)}: {words}"


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("doctor")(doctor)
    app.command("check")(check)
