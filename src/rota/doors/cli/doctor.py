"""`rota doctor`: what is wrong with this installation, and what to do. It changes nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated
from zoneinfo import available_timezones

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.executors import executor_lines, executor_records
from rota.doors.cli.gateway_words import Gatekeeping, gateway_lines, gateway_record
from rota.doors.cli.lacks import DAEMON, Looked, ask_daemon, look_here
from rota.doors.cli.remote import ADMIN_KEY, find_daemon
from rota.doors.kit.announcing import PLACE, word_of
from rota.errors import RotaError
from rota.flow.observe.status import Thresholds, view_status
from rota.flow.observe.verify import verify
from rota.gateway.looking import look
from rota.gateway.sealed import KEY
from rota.model.instants import from_micros
from rota.model.problems import DISK_FULL, FAILING, UNWRITABLE
from rota.ports.store import Store
from rota.runtime.clock import SystemClock
from rota.stores.sqlite.permissions import narrow
from rota.wiring.compose import database_exists, looked_at
from rota.wiring.permissions import open_home, permissive
from rota.wiring.secrets import GATEWAY, SECRETS, LocalSecrets
from rota.wiring.settings import Settings, read_settings, unknown_variables
from rota.wiring.sites import LocalSites, Tried

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
NOTHING = Looked([], DAEMON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong, what to do, and how to mend it here if that is safe."""

    code: str
    sentence: str
    advice: str
    mend: Callable[[], object] | None = None


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("doctor")(doctor)


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
    desk = Desk(context)
    settings, faults = read_settings(desk.invocation.home, desk.invocation.store)
    found = [_wrong("settings", fault, "correct it, then `rota check`") for fault in faults]
    found += [
        _wrong("settings", f"{name} is not a setting and has no effect", "unset it")
        for name in unknown_variables()
    ]
    executors: list[Tried] = []
    gate = Gatekeeping(None, [])
    looked = NOTHING
    if settings is not None:
        found += [*_absence(desk, settings), *examine(settings), *_daemon(settings)]
        looked = _programs(settings)
        found += [_wrong("programs", *lack) for lack in looked.lacks]
        gate, wrong = _gateway(settings)
        found += wrong
        try:
            executors = LocalSites(settings).try_all()
        except RotaError as fault:
            found.append(_wrong("executors", str(fault), "correct it, then look again"))
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


def _absence(desk: Desk, settings: Settings) -> Iterator[Finding]:
    """Look whether there is a database where somebody says that there is one."""
    lost = desk.absence(settings)
    if lost is not None and lost.named:
        what, _, advice = lost.sentence.partition(": ")
        yield _wrong("home", what, advice)


def examine(settings: Settings) -> list[Finding]:
    """Return everything that is wrong with an installation whose settings are right."""
    found = [*_files(settings), *_room(settings), *_time(settings)]
    if settings.store == "memory:" or not database_exists(settings):
        return found
    try:
        found += asyncio.run(_database(settings))
    except RotaError as fault:
        found.append(_wrong("database", str(fault), "mend that first, then look again"))
    return found


def _gateway(settings: Settings) -> tuple[Gatekeeping, list[Finding]]:
    """Look at the gateway and at what it would show to providers; neither is touched."""
    folder = settings.home.absolute()
    seen, key = look(folder / GATEWAY), folder / SECRETS / KEY
    if key.exists() and key.stat().st_mode & OTHERS:
        return Gatekeeping(seen, []), [_private(key, 0o600)]
    secrets = LocalSecrets(settings)
    try:
        listed = asyncio.run(secrets.list_secrets())
    except RotaError as fault:
        return Gatekeeping(seen, []), [_wrong("gateway", str(fault), "correct it, then look again")]
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
    return Gatekeeping(seen, listed), found


def _wrong(code: str, sentence: str, advice: str) -> Finding:
    return Finding(code=code, sentence=sentence, advice=advice)


def _mended(finding: Finding) -> bool:
    if finding.mend is None:
        return False
    try:
        return finding.mend() is not False
    except OSError:
        return False


def _records(found: list[Finding], mended: list[bool]) -> list[dict[str, object]]:
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


def _files(settings: Settings) -> Iterator[Finding]:
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


def _private(path: Path, mode: int) -> Finding:
    return Finding(
        code="permissions",
        sentence=f"others may read {path}",
        advice=f"chmod {mode:o} {path}",
        mend=partial(narrow, str(path), mode),
    )


def _unheard(place: Path) -> Finding:
    word = word_of(place.parent)
    if word is None:
        sentence = f"{place} tells of a daemon that is not there"
        advice = f"remove it: rm {place}"
        return Finding(code="stale_api", sentence=sentence, advice=advice, mend=place.unlink)
    sentence = f"the daemon of {place} (process {word.pid}) does not answer"
    return _wrong("no_answer", sentence, "see its log; `rota service logs` if it is a service")


def _room(settings: Settings) -> Iterator[Finding]:
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


def _time(settings: Settings) -> Iterator[Finding]:
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


async def _database(settings: Settings) -> list[Finding]:
    bounds = Thresholds(queue=settings.queue_warning, running=settings.running_warning)
    async with looked_at(settings) as store:
        return [
            *_drift(store),
            *await _queue(store, bounds),
            *await _record_of(store, settings),
        ]


def _drift(store: Store) -> Iterator[Finding]:
    drift = from_micros(store.now()) - SystemClock().now()
    if abs(drift) > LARGEST_DRIFT:
        sentence = f"the database's clock is {abs(drift).total_seconds():.0f} s away from this one"
        yield _wrong(
            "clock", sentence, "keep both set by NTP; the database's is the one that counts"
        )


async def _queue(store: Store, bounds: Thresholds) -> list[Finding]:
    seen = await view_status(store, bounds)
    return [_wrong(w.code, w.sentence, "see `rota status`") for w in seen.warnings]


def _daemon(settings: Settings) -> list[Finding]:
    """Ask the daemon what it cannot do, which only it knows."""
    with suppress(RotaError):  # what does not answer is told of already
        daemon = find_daemon(settings.home)
        if daemon is not None:
            with closing(daemon):
                warnings = daemon.call("GET", "/v1/status", {})["warnings"]
            told = [w for w in warnings if w["code"] in ADVICE]
            return [_wrong(w["code"], w["message"], ADVICE[w["code"]]) for w in told]
    return []


def _programs(settings: Settings) -> Looked:
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


async def _programs_here(settings: Settings) -> Looked:
    async with looked_at(settings) as store:
        return await look_here(store, settings)


async def _record_of(store: Store, settings: Settings) -> list[Finding]:
    file = _file(settings)
    if file is None or file.stat().st_size > LARGEST_LOOKED_AT:
        return []
    judged = await verify(store)
    return [
        _wrong("record", f"{check.invariant} does not hold {check.violated} times", "rota verify")
        for check in judged.checks
        if check.violated
    ]
