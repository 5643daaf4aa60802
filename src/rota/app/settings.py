"""Settings: rota.toml, environment variables, and prices of models.

A variable wins over the file, and what was typed on the command line wins over both. Everything
that is wrong is reported together.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from rota.app.addresses import check_address
from rota.app.environment import OF_COMMANDS, PREFIX, home_folder
from rota.errors import Invalid, Refused, advice_on
from rota.faultpoints import parse_fault
from rota.model.budgets import NO_PRICES, Price, Prices
from rota.timing.durations import parse_duration
from rota.timing.zones import zone

_Dollars = Annotated[float, Field(ge=0, le=1_000_000)]


class PriceSetting(BaseModel):
    """What a million tokens of a model cost."""

    model_config = ConfigDict(extra="forbid")

    input: _Dollars
    output: _Dollars
    cached: _Dollars | None = None


TierModels: TypeAlias = dict[
    Literal["claude", "codex", "pi"], dict[Literal["low", "medium", "high"], str]
]
PRICE_MEANINGS = {
    "prices": "what models cost whose agent tells only tokens, in the file: "
    '`[prices."gpt-6"]` with `input`, `output` and `cached`, dollars for a million tokens',
    "tiers": "the models of each agent that `model_tier` means, in the file: `[tiers.claude]` "
    "with `low`, `medium` and `high`",
}


def prices_of(told: Mapping[str, PriceSetting]) -> Prices:
    """Return what was set."""
    return {name: Price(one.input, one.output, one.cached) for name, one in told.items()}


FILE_NAME = "rota.toml"

SLOTS = 1_000
"""Runs at once in one process: coroutines are cheap."""
THREADS = 32
"""Of these, plain functions at once."""
DRAIN = timedelta(seconds=30)
"""How long a stop waits for runs; most service managers kill after 90 s."""
WORKER_TTL = timedelta(seconds=30)
"""How long a worker that stopped renewing keeps its runs; it renews three times as often."""
SHORTEST_TTL = timedelta(seconds=1)
RETENTION = timedelta(days=30)
"""How long ended runs and events are kept."""
LIMIT_FOREGROUND = 5
LIMIT_BACKGROUND = 3
LIMIT_SPACE_FOREGROUND = 2
LIMIT_SPACE_BACKGROUND = 1
"""Agents and scripts at once, in all and for one space; callables count against slots only."""
LIMIT_SPACE_QUEUED = 1_000
LIMIT_SPACE_SCHEDULES = 200
"""Of one member space; `main` may have any number."""
QUEUE_WARNING = 25
"""Ready runs from which `rota status` warns."""
TIMEOUT = timedelta(minutes=30)
GRACE = timedelta(seconds=10)
"""For programs whose task says nothing."""
HEARTBEAT = timedelta(seconds=60)
"""How often a process tells of what it runs; two missed are noticed."""
RUNNING_WARNING = timedelta(minutes=30)
"""Age of a running run from which `rota status` warns."""
AGENT_RETRIES = 3
AGENT_WAIT = timedelta(seconds=5)
OUTLET_PORT = 7683

MAX_CONCURRENT = 100_000
LONGEST = timedelta(days=36_525)

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How this installation works; `given` names what was set on purpose."""

    home: Path
    store: str
    timezone: str = "UTC"
    slots: int = SLOTS
    threads: int = THREADS
    drain: timedelta = DRAIN
    worker_ttl: timedelta = WORKER_TTL
    retention: timedelta = RETENTION
    limit_foreground: int = LIMIT_FOREGROUND
    limit_background: int = LIMIT_BACKGROUND
    limit_space_foreground: int = LIMIT_SPACE_FOREGROUND
    limit_space_background: int = LIMIT_SPACE_BACKGROUND
    limit_space_queued: int = LIMIT_SPACE_QUEUED
    limit_space_schedules: int = LIMIT_SPACE_SCHEDULES
    queue_warning: int = QUEUE_WARNING
    running_warning: timedelta = RUNNING_WARNING
    timeout: timedelta = TIMEOUT
    idle_timeout: timedelta | None = None
    grace: timedelta = GRACE
    heartbeat: timedelta = HEARTBEAT
    host: str = "127.0.0.1"
    port: int | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    trusted_proxies: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    agent: str = "claude"
    agent_retries: int = AGENT_RETRIES
    agent_wait: timedelta = AGENT_WAIT
    prices: Prices = field(default_factory=lambda: NO_PRICES, hash=False)
    tiers: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    engine: str | None = None
    engine_users: str | None = None
    mounts: Path | None = None
    outlet: Path | None = None
    outlet_port: int = OUTLET_PORT
    gateway: Path | None = None
    check_inside: bool = False
    metrics_open: bool = False
    sql_url: str | None = None
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"
    log_file: Path | None = None
    fault: str = ""
    color: bool = True
    given: frozenset[str] = field(default=frozenset())

    @property
    def file(self) -> Path:
        """Where the settings file is, or would be."""
        return self.home / FILE_NAME


def _span(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value)
    except Invalid as fault:
        raise ValueError(fault.advice) from None


def _zone(value: object) -> object:
    try:
        return zone(str(value)).key
    except Invalid as fault:
        raise ValueError(fault.advice) from None


def _address(value: object) -> object:
    try:
        return check_address(str(value))
    except Invalid as fault:
        raise ValueError(fault.advice) from None


def _postgres(value: object) -> object:
    if not str(value).startswith(("postgresql://", "postgres://")):
        message = "write postgresql://rota_sql@host/name, or nothing for a SQLite database"
        raise ValueError(message)
    return value


def _engine(value: object) -> object:
    if value not in {"podman", "docker"} and not str(value).startswith("/"):
        message = "write podman, docker or the whole path of one of them"
        raise ValueError(message)
    return value


def _words(value: object) -> object:
    return (
        [part.strip() for part in value.split(",") if part.strip()]
        if isinstance(value, str)
        else value
    )


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _fault(value: object) -> object:
    try:
        return str(parse_fault(str(value))) if value else ""
    except Invalid as fault:
        raise ValueError(fault.advice) from None


_Span = Annotated[timedelta, BeforeValidator(_span), Field(gt=timedelta(), le=LONGEST)]
_Wait = Annotated[timedelta, BeforeValidator(_span), Field(ge=timedelta(), le=timedelta(days=1))]
_Lease = Annotated[timedelta, BeforeValidator(_span), Field(ge=SHORTEST_TTL, le=timedelta(days=1))]
_Count = Annotated[int, Field(ge=1, le=MAX_CONCURRENT)]
_Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
_Port = Annotated[int, Field(ge=0, le=65_535)]
_Cap = Annotated[int, Field(ge=0, le=MAX_CONCURRENT)]


MEANINGS = MappingProxyType(
    {
        "store": "the database: `sqlite:///path`, `postgresql://user@host/name` or `memory:`; "
        "`rota.db` in the home folder if none is given",
        "timezone": "the zone of the space `main` when it is first made",
        "slots": "runs at once in one process",
        "threads": "plain functions at once, out of the slots",
        "drain": "how long a stop waits for runs to end",
        "worker_ttl": "how long the runs of a process that has died are kept for it, where several "
        "processes share a database",
        "retention": "how long ended runs, ledger rows and events are kept",
        "limit_foreground": "metered runs at once in the foreground pool",
        "limit_background": "metered runs at once in the background pool",
        "limit_space_foreground": "metered runs of one space at once in the foreground pool",
        "limit_space_background": "metered runs of one space at once in the background pool",
        "limit_space_queued": "queued runs of one member space; slots of its schedules are queued "
        "beyond it: see [quotas](../decisions/quotas.md)",
        "limit_space_schedules": "schedules of one member space that have a slot to come",
        "queue_warning": "ready runs from which `rota status` warns of `queue_depth_high`",
        "running_warning": "age of a running run from which it warns of `running_task_stale`",
        "timeout": "how long a program may take whose task does not say",
        "idle_timeout": "how long a program may write nothing whose task does not say; for ever if "
        "none is given",
        "grace": "how long a program has to end once it was asked to, if its task does not say",
        "heartbeat": "how often a process tells of every attempt it runs: see "
        "[heartbeats](../decisions/heartbeats.md)",
        "host": "the address the API listens on; any other than loopback needs TLS or a proxy",
        "port": "the port of the API; 7682 if it is free, or else any, if none is given",
        "tls_cert": "a certificate in PEM, for `https`",
        "tls_key": "its private key in PEM",
        "trusted_proxies": "addresses of proxies that speak TLS for the API, and whose "
        "`X-Forwarded-For` is believed",
        "hosts": "further names that requests may call this host by",
        "calls": "callables, `module:function`, that may be named over HTTP",
        "agent": "the agent of tasks that name none: `claude`, `codex`, `pi` or `command`",
        "agent_retries": "how often an agent is tried again inside an attempt when its provider "
        "limits, is overloaded or cannot be reached",
        "agent_wait": "how long it waits before each of these",
        **PRICE_MEANINGS,
        "engine": "what runs containers: `podman`, `docker`, or the path of one of them; the one "
        "that is found if none is given",
        "engine_users": "whom programs in containers are to this machine: `mapped`, nobody but for "
        "their own folders, or `own`, the user that runs Rota; `mapped` for podman without root if "
        "none is given",
        "mounts": "the file that lists which folders tasks may ask to see beside their own; "
        "`mounts.toml` in the home folder if none is given",
        "outlet": "a Unix socket of this machine, of a proxy to models' providers for instance: "
        "all that agents behind walls reach, and programs of tasks with the network `outlet`",
        "outlet_port": "the port of 127.0.0.1 at which they find it behind the walls",
        "gateway": "the file that says which [upstreams](../how-to/secrets.md) programs may ask, "
        "and where secrets come from; `gateway.toml` in the home folder if none is given",
        "check_inside": "`true` lets checks ask addresses of this machine and of its own networks",
        "metrics_open": "`true` shows `/metrics` without a key to whoever asks from this machine",
        "sql_url": "on PostgreSQL, the address by which `POST /v1/sql` asks, with the role that "
        "`rota sql role` makes; SQL is off without it",
        "log_level": "`debug`, `info`, `warning` or `error`",
        "log_format": "`json`, `text`, or `auto`: text on a terminal",
        "log_file": "where `rota up` writes its log too, as JSON lines, 10 MB and five older files "
        "at most; `logs/rota.log` in the home folder if none is given, `/dev/null` for none",
        "fault": "for tests of Rota itself: `name:hit:action` hurts the process at a "
        "[fault point](fault-points.md)",
    }
)
"""What each setting means, for the reference."""


class SettingsFile(BaseModel):
    """What the file and the variables may say; the names are those of Settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: Annotated[str, BeforeValidator(_address)] | None = None
    timezone: Annotated[str, BeforeValidator(_zone)] = "UTC"
    slots: _Count = SLOTS
    threads: _Count = THREADS
    drain: _Wait = DRAIN
    worker_ttl: _Lease = WORKER_TTL
    retention: _Span = RETENTION
    limit_foreground: _Cap = LIMIT_FOREGROUND
    limit_background: _Cap = LIMIT_BACKGROUND
    limit_space_foreground: _Cap = LIMIT_SPACE_FOREGROUND
    limit_space_background: _Cap = LIMIT_SPACE_BACKGROUND
    limit_space_queued: _Cap = LIMIT_SPACE_QUEUED
    limit_space_schedules: _Cap = LIMIT_SPACE_SCHEDULES
    queue_warning: _Count = QUEUE_WARNING
    running_warning: _Span = RUNNING_WARNING
    timeout: _Span = TIMEOUT
    idle_timeout: _Span | None = None
    grace: _Span = GRACE
    heartbeat: _Lease = HEARTBEAT
    host: Annotated[str, Field(min_length=1, max_length=255)] = "127.0.0.1"
    port: _Port | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    trusted_proxies: _Words = ()
    hosts: _Words = ()
    calls: _Words = ()
    agent: Literal["claude", "codex", "pi", "command"] = "claude"
    agent_retries: Annotated[int, Field(ge=0, le=100)] = AGENT_RETRIES
    agent_wait: _Wait = AGENT_WAIT
    prices: dict[str, PriceSetting] = Field(default_factory=dict)
    tiers: TierModels = Field(default_factory=dict)
    engine: Annotated[str, BeforeValidator(_engine)] | None = None
    engine_users: Literal["mapped", "own"] | None = None
    mounts: Path | None = None
    outlet: Annotated[Path, AfterValidator(_absolute)] | None = None
    outlet_port: Annotated[int, Field(ge=1024, le=65_535)] = OUTLET_PORT
    gateway: Annotated[Path, AfterValidator(_absolute)] | None = None
    check_inside: bool = False
    metrics_open: bool = False
    sql_url: Annotated[str, BeforeValidator(_postgres)] | None = None
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = "info"
    log_format: Annotated[LogFormat, BeforeValidator(_lower)] = "auto"
    log_file: Path | None = None
    fault: Annotated[str, BeforeValidator(_fault)] = ""


def load_settings(home: str | None = None, store: str | None = None, **typed: object) -> Settings:
    """Return the settings of a home folder, or refuse them with everything that is wrong."""
    settings, faults = read_settings(home, store, **typed)
    if settings is None:
        raise Refused("; ".join(faults))
    return settings


def read_settings(
    home: str | None = None, store: str | None = None, **more: object
) -> tuple[Settings | None, list[str]]:
    """Return the settings, or None and one sentence for each thing that is wrong with them."""
    folder = home_folder(home)
    written, faults = _read_file(folder / FILE_NAME)
    typed = {name: value for name, value in {"store": store, **more}.items() if value is not None}
    try:
        wanted = SettingsFile.model_validate({**written, **_variables(), **typed})
    except ValidationError as fault:
        return None, [*faults, *_sentences(fault)]
    if faults:
        return None, faults
    values = {name: getattr(wanted, name) for name in SettingsFile.model_fields}
    values["prices"] = prices_of(wanted.prices)
    values["store"] = values["store"] or f"sqlite:///{folder / 'rota.db'}"
    color = not os.environ.get("NO_COLOR")
    given = frozenset(wanted.model_fields_set)
    return Settings(home=folder, color=color, given=given, **values), []


def unknown_variables() -> list[str]:
    """Return the ROTA_* variables that stand for no setting, as one finds after a typing error."""
    known = {f"{PREFIX}{name.upper()}" for name in (*OF_COMMANDS, *SettingsFile.model_fields)}
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def _read_file(path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}, []
    except (OSError, UnicodeDecodeError) as fault:
        return {}, [f"{path}: cannot be read ({fault})"]
    try:
        return tomllib.loads(text), []
    except tomllib.TOMLDecodeError as fault:
        return {}, [f"{path}: is not TOML ({fault})"]


def _variables() -> dict[str, str]:
    """Return what ROTA_* variables say; an empty one says nothing."""
    said = {name: os.environ.get(f"{PREFIX}{name.upper()}") for name in SettingsFile.model_fields}
    return {name: value for name, value in said.items() if value}


def _sentences(fault: ValidationError) -> Iterable[str]:
    for error in fault.errors():
        name = ".".join(str(part) for part in error["loc"] if isinstance(part, str))
        if error["type"] == "extra_forbidden":
            yield str(Invalid("setting", name, _no_setting(name)))
        else:
            yield str(Invalid(name, error["input"], advice_on(error)))


def _no_setting(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only for faults

    near = get_close_matches(name, SettingsFile.model_fields, 1)
    meant = f": did you mean {near[0]}? There" if near else "; there"
    return f"no such setting{meant} are {', '.join(SettingsFile.model_fields)}"
