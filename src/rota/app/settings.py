"""Settings: rota.toml, environment variables, and prices of models.

A variable overrides the file, and the command line overrides both. All errors are reported
together.
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
    """Prices for a million tokens of a model."""

    model_config = ConfigDict(extra="forbid")

    input: _Dollars
    output: _Dollars
    cached: _Dollars | None = None


PLUGIN_TABLES = ("executors", "agents", "channels")
"""The tables of the file that hold the settings of plug-ins: `[executors.container]`."""


PluginTables: TypeAlias = Mapping[str, Mapping[str, Mapping[str, object]]]


def prices_of(told: Mapping[str, PriceSetting]) -> Prices:
    """Convert the price settings."""
    return {name: Price(one.input, one.output, one.cached) for name, one in told.items()}


FILE_NAME = "rota.toml"

SLOTS = 1_000
"""Runs at once in one process; coroutines are cheap."""
THREADS = 32
"""Plain functions at once, within the slots."""
DRAIN = timedelta(seconds=30)
"""How long a shutdown waits for runs; most service managers kill after 90 s."""
WORKER_TTL = timedelta(seconds=30)
"""How long a worker that stopped renewing keeps its runs; it renews three times as often."""
SHORTEST_TTL = timedelta(seconds=1)
RETENTION = timedelta(days=30)
"""How long finished runs and events are kept."""
LIMIT_FOREGROUND = 5
LIMIT_BACKGROUND = 3
LIMIT_SPACE_FOREGROUND = 2
LIMIT_SPACE_BACKGROUND = 1
"""Agents and scripts at once, in all and for one space; callables count only against slots."""
LIMIT_SPACE_QUEUED = 1_000
LIMIT_SPACE_SCHEDULES = 200
"""For one member space; `main` has no limit."""
QUEUE_WARNING = 25
"""Number of ready runs from which `rota status` warns."""
TIMEOUT = timedelta(minutes=30)
GRACE = timedelta(seconds=10)
"""For programs whose task has none."""
HEARTBEAT = timedelta(seconds=60)
"""Interval of heartbeats; two missed ones raise an event."""
RUNNING_WARNING = timedelta(minutes=30)
"""Age of a running run from which `rota status` warns."""
LAUNCH_RETRIES = 3
LAUNCH_WAIT = timedelta(seconds=5)
EGRESS_PORT = 7683

MAX_CONCURRENT = 100_000
LONGEST = timedelta(days=36_525)

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an installation; `given` names those that were set explicitly."""

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
    callables: tuple[str, ...] = ()
    agent: str | None = None
    launch_retries: int = LAUNCH_RETRIES
    launch_wait: timedelta = LAUNCH_WAIT
    prices: Prices = field(default_factory=lambda: NO_PRICES, hash=False)
    mounts: Path | None = None
    egress_socket: Path | None = None
    egress_port: int = EGRESS_PORT
    gateway: Path | None = None
    check_internal_addresses: bool = False
    metrics_open: bool = False
    sql_url: str | None = None
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"
    log_file: Path | None = None
    fault: str = ""
    color: bool = True
    plugins: PluginTables = field(default_factory=dict, hash=False)
    """What the tables of the file say of plug-ins: kind, name, setting."""
    plugin_variables: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The variables that begin like those of plug-ins, without ROTA_, in lower case."""
    given: frozenset[str] = field(default=frozenset())

    @property
    def file(self) -> Path:
        """The path of the settings file."""
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
        message = "write postgresql://rota_sql@host/name, or leave it out for SQLite"
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
        "default: `rota.db` in the home folder",
        "timezone": "the time zone of the space `main` when it is created",
        "slots": "runs at once in one process",
        "threads": "plain functions at once, within the slots",
        "drain": "how long a shutdown waits for running callables",
        "worker_ttl": "length of the lease of a worker: how long the runs of a dead process stay "
        "assigned to it, where several processes share a database",
        "retention": "how long finished runs, ledger rows and events are kept",
        "limit_foreground": "metered runs at once in the foreground pool",
        "limit_background": "metered runs at once in the background pool",
        "limit_space_foreground": "metered runs of one space at once in the foreground pool",
        "limit_space_background": "metered runs of one space at once in the background pool",
        "limit_space_queued": "queued runs of one member space; slots of its schedules are queued "
        "beyond this number: see [quotas](../decisions/quotas.md)",
        "limit_space_schedules": "schedules with a future slot in one member space",
        "queue_warning": "number of ready runs from which `rota status` warns of "
        "`queue_depth_high`",
        "running_warning": "age of a running run from which `rota status` warns of "
        "`running_task_stale`",
        "timeout": "how long a program may run if its task has no timeout",
        "idle_timeout": "how long a program may write nothing if its task has no idle timeout; "
        "unlimited by default",
        "grace": "time between SIGTERM and SIGKILL for a program if its task has none",
        "heartbeat": "how often a process records a heartbeat of each attempt: see "
        "[heartbeats](../decisions/heartbeats.md)",
        "host": "the address that the API listens on; any other than loopback needs TLS or a proxy",
        "port": "the port of the API; default: 7682, or any free port if 7682 is in use",
        "tls_cert": "TLS certificate, a PEM file",
        "tls_key": "private key of the certificate, a PEM file",
        "trusted_proxies": "addresses of proxies that terminate TLS for the API and whose "
        "`X-Forwarded-For` is trusted",
        "hosts": "additional host names that requests may use",
        "callables": "callables, `module:function`, that requests over HTTP may name",
        "agent": "the agent of tasks that name none; default: the one that its plug-in declares",
        "launch_retries": "how often an agent is launched again inside an attempt when its "
        "provider limits requests, is overloaded or cannot be reached",
        "launch_wait": "time before each of these launches",
        "prices": "prices of models whose agent reports tokens only, in the file: "
        '`[prices."gpt-6"]` with `input`, `output` and `cached`, dollars for a million tokens',
        "mounts": "the file that lists the folders that tasks may mount; default: `mounts.toml` in "
        "the home folder",
        "egress_socket": "a Unix socket of this machine, for example of a proxy to "
        "model providers. Isolated agents, and programs of tasks with the network `egress`, "
        "reach nothing else",
        "egress_port": "the port of 127.0.0.1 at which isolated programs reach the egress socket",
        "gateway": "the file that configures the [upstreams](../how-to/secrets.md) of programs and "
        "the sources of secrets; default: `gateway.toml` in the home folder",
        "check_internal_addresses": "`true` allows checks to request addresses of this "
        "machine and its networks",
        "metrics_open": "`true` serves `/metrics` without a key to clients on this machine",
        "sql_url": "on PostgreSQL, the address for `POST /v1/sql`, with the role that "
        "`rota sql role` creates; SQL is off without it",
        "log_level": "`debug`, `info`, `warning` or `error`",
        "log_format": "`json`, `text`, or `auto`: text on a terminal",
        "log_file": "the log file of `rota up`, as JSON lines, with at most 10 MB and five older "
        "files; default: `logs/rota.log` in the home folder; `/dev/null` disables it",
        "fault": "for tests of Rota itself: `name:hit:action` performs an action at a "
        "[fault point](fault-points.md)",
    }
)
"""The description of each setting, for the reference."""


class SettingsFile(BaseModel):
    """The settings in file and variables; the names are those of Settings."""

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
    callables: _Words = ()
    agent: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    launch_retries: Annotated[int, Field(ge=0, le=100)] = LAUNCH_RETRIES
    launch_wait: _Wait = LAUNCH_WAIT
    prices: dict[str, PriceSetting] = Field(default_factory=dict)
    mounts: Path | None = None
    egress_socket: Annotated[Path, AfterValidator(_absolute)] | None = None
    egress_port: Annotated[int, Field(ge=1024, le=65_535)] = EGRESS_PORT
    gateway: Annotated[Path, AfterValidator(_absolute)] | None = None
    check_internal_addresses: bool = False
    metrics_open: bool = False
    sql_url: Annotated[str, BeforeValidator(_postgres)] | None = None
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = "info"
    log_format: Annotated[LogFormat, BeforeValidator(_lower)] = "auto"
    log_file: Path | None = None
    fault: Annotated[str, BeforeValidator(_fault)] = ""


def load_settings(home: str | None = None, store: str | None = None, **typed: object) -> Settings:
    """Return the settings of a home folder, or refuse them with all errors."""
    settings, faults = read_settings(home, store, **typed)
    if settings is None:
        raise Refused("; ".join(faults))
    return settings


def read_settings(
    home: str | None = None, store: str | None = None, **more: object
) -> tuple[Settings | None, list[str]]:
    """Return the settings, or None and one sentence for each error."""
    folder = home_folder(home)
    written, faults = _read_file(folder / FILE_NAME)
    plugins = {kind: written.pop(kind, {}) for kind in PLUGIN_TABLES}
    faults += _wrong_tables(plugins)
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
    variables = {name: os.environ[f"{PREFIX}{name.upper()}"] for name in plugin_variables()}
    return Settings(
        home=folder,
        color=color,
        plugins=plugins,
        plugin_variables=variables,
        given=given,
        **values,
    ), []


def plugin_variables() -> list[str]:
    """Return the variables of plug-ins that are set, such as `executors_container_engine`."""
    begins = tuple(f"{PREFIX}{kind.upper()}_" for kind in PLUGIN_TABLES)
    found = (name for name, value in os.environ.items() if value and name.startswith(begins))
    return sorted(name.removeprefix(PREFIX).lower() for name in found)


def _wrong_tables(plugins: PluginTables) -> list[str]:
    """Return a sentence for each table of plug-ins that is none."""
    faults = []
    for kind, tables in plugins.items():
        names = tables if isinstance(tables, dict) else {kind: tables}
        wrong = [name for name, table in names.items() if not isinstance(table, dict)]
        faults += [str(Invalid(kind, name, f"write a table: [{kind}.NAME]")) for name in wrong]
    return faults


def unknown_variables() -> list[str]:
    """Return ROTA_* variables that are no settings, for example misspelt ones; not of plug-ins."""
    names = (*OF_COMMANDS, *SettingsFile.model_fields, *plugin_variables())
    known = {f"{PREFIX}{name.upper()}" for name in names}
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
    """Return the ROTA_* variables that are not empty."""
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

    known = (*SettingsFile.model_fields, *PLUGIN_TABLES)
    near = get_close_matches(name, known, 1)
    meant = f": did you mean {near[0]}? There" if near else "; there"
    return f"unknown setting{meant} are {', '.join(known)}"
