"""How machines were doing, and what was last heard of the attempts that run on them."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.doors.commands.fields import Instant, Limit, SpaceName, Word
from rota.doors.commands.shapes import Asked, Given
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.model.instants import from_micros, to_micros
from rota.model.keys import KeyScope
from rota.model.machines import Heard, Reading
from rota.rules.permission import check_main, seen_space

HOUR = timedelta(hours=1)


class ReadingsWanted(Asked):
    """Which readings to list, newest first: since when (an hour ago), of which machine."""

    since: Instant | None = None
    before: Instant | None = None
    host: Word | None = None
    limit: Limit = 100


class ReadingGiven(Given):
    """What ran in a home at a moment, and how its machine was doing as a whole."""

    at: datetime
    host: str
    home: str
    running: int
    agents: int
    panes: int
    spaces: int
    cpu_percent: float | None
    memory_bytes: int | None
    memory_total: int | None


class Readings(Given):
    """Readings of machines, newest first; `next` continues the list as `before`."""

    readings: list[ReadingGiven]
    next: datetime | None


class HeardWanted(Asked):
    """Of which running attempts to tell."""

    space: SpaceName | None = None
    limit: Limit = 100


class HeardGiven(Given):
    """A running attempt, and what was last heard of it."""

    run: int
    attempt: int
    task: str
    space: str
    executor: str | None
    state: str
    alive: bool
    started_at: datetime
    heard_at: datetime
    output_at: datetime | None
    last_line: str | None
    processes: int | None
    cpu_seconds: float | None
    memory_bytes: int | None
    silence: str | None


class HeardList(Given):
    """Running attempts, longest unheard first."""

    heartbeats: list[HeardGiven]


@command("GET", "/v1/machines/readings", KeyScope.ADMIN)
async def list_readings(office: Office, asked: ReadingsWanted) -> Readings:
    """List how machines were doing, one reading for each heartbeat of a daemon, newest first."""
    check_main(office.caller)
    now = from_micros(office.store.now())
    since = to_micros(asked.since or now - HOUR)
    before = to_micros(asked.before or now + HOUR)
    found = await office.store.list_readings(since, before, asked.host, asked.limit)
    more = len(found) == asked.limit
    return Readings(
        readings=[as_given(reading) for reading in found], next=found[-1].at if more else None
    )


@command("GET", "/v1/heartbeats", KeyScope.READ)
async def list_heartbeats(office: Office, asked: HeardWanted) -> HeardList:
    """List running attempts with what was last heard of each."""
    name = seen_space(office.caller, asked.space)
    space = None if name is None else (await office.store.find_space(name)).id
    found = await office.store.list_heard(space, asked.limit)
    return HeardList(heartbeats=[_heard(one) for one in found])


def as_given(reading: Reading) -> ReadingGiven:
    """Return a reading as doors give it."""
    return ReadingGiven(
        at=reading.at,
        host=reading.host,
        home=reading.home,
        running=reading.running,
        agents=reading.agents,
        panes=reading.panes,
        spaces=reading.spaces,
        **reading.load._asdict(),
    )


def _heard(heard: Heard) -> HeardGiven:
    sign = heard.heartbeat.sign
    return HeardGiven(
        run=sign.run_id,
        attempt=sign.epoch,
        task=heard.task,
        space=heard.space,
        executor=heard.executor or None,
        state=sign.state,
        alive=sign.alive,
        started_at=heard.started_at,
        heard_at=heard.heartbeat.at,
        output_at=sign.output_at,
        last_line=sign.last_line,
        processes=sign.processes,
        cpu_seconds=sign.cpu_seconds,
        memory_bytes=sign.memory_bytes,
        silence=heard.heartbeat.silence,
    )
