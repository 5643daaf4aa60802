"""Zone data change between two lives of a planner: each nominal time has one slot, and none is lost.

Every data set is a real zone file. The town is an hour ahead of UTC; the new data have it change,
which a planner learns before or after it happened.
"""

from __future__ import annotations

import sqlite3
import struct
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
TOWN = "Rota/Town"
BEGIN = datetime(2026, 3, 9, 0, tzinfo=UTC)
END = datetime(2026, 3, 11, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
BEFORE = 1
HOURLY = ("cron", "calendar", "rrule", "busy")


class News(NamedTuple):
    """At `change` the town comes to be so many hours ahead; the planner learns it at `learned`."""

    change: datetime
    ahead: int
    learned: datetime

    def at(self, wall: datetime) -> datetime:
        """Return when the wall shows a time, by the new data; what it skips is the change."""
        at = wall - HOUR * BEFORE
        return at if at < self.change else max(self.change, wall - HOUR * self.ahead)


class Story(NamedTuple):
    """What became known, and the database of the planner that learned it."""

    news: News
    database: Path


def utc(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, minute, tzinfo=UTC)


NEWS = {
    "ahead, known before": News(utc(10, 2), 2, utc(9, 12, 45)),
    "back, known before": News(utc(10, 2), 0, utc(9, 12, 45)),
    "ahead, known after": News(utc(9, 10), 2, utc(9, 12, 45)),
    "back, known after": News(utc(9, 10), 0, utc(9, 12, 45)),
    "three hours ahead, known after": News(utc(9, 10), 4, utc(9, 20, 45)),
    "three hours back, known after": News(utc(9, 10), -2, utc(9, 20, 45)),
    "ahead, known a day after": News(utc(9, 10), 2, utc(10, 10, 45)),
}


def write_zone(folder: Path, news: News | None) -> Path:
    """Write the town's zone file as TZif version 2, with one change or none."""
    kinds = [BEFORE, news.ahead if news else BEFORE]
    times = [int(news.change.timestamp())] if news else []
    names = b"".join(f"{hours:+03}\0".encode() for hours in kinds)
    header = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, len(times), len(kinds), len(names))
    body = b"".join(struct.pack(">q", time) for time in times)
    body += b"\1" * len(times)
    body += b"".join(struct.pack(">lBB", hours * 3600, 0, 4 * n) for n, hours in enumerate(kinds))
    last = kinds[-1]
    footer = f"\n<{last:+03}>{-last}\n".encode()
    empty = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, 0, 0, 0)
    path = folder / TOWN
    path.parent.mkdir(parents=True)
    path.write_bytes(empty + header + body + names + footer)
    return folder


def live(database: Path, zones: Path, begin: datetime, end: datetime) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.scenario.zone_data.life", database, str(begin), str(end)],
        cwd=ROOT,
        env={"PYTHONTZPATH": str(zones)},
        check=True,
        timeout=60,
    )


class Slots(NamedTuple):
    """What the database says of a task: the instants and sources of its runs, and its ledger."""

    runs: dict[str, tuple[datetime, str]]
    ledger: list[str]
    reasons: set[str]


def slots_of(database: Path, task: str) -> Slots:
    with sqlite3.connect(database) as connection:
        runs = connection.execute(
            "select r.slot_key, r.slot_at, r.source from runs r"
            " join tasks t on t.id = r.task_id where t.name = ?",
            (task,),
        ).fetchall()
        ledger = connection.execute(
            "select l.first_key, l.last_key, l.count, l.reason from ledger l"
            " join schedules s on s.id = l.schedule_id"
            " join tasks t on t.id = s.task_id where t.name = ?",
            (task,),
        ).fetchall()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return Slots(
        {key: (epoch + timedelta(microseconds=at), source) for key, at, source in runs},
        [key for first, last, count, _ in ledger for key in hours_between(first, last, count)],
        {row[3] for row in ledger},
    )


def key_of(wall: datetime) -> str:
    return f"{wall:%Y-%m-%dT%H:%M}[{TOWN}]#0"


def hours_between(first: str, last: str, count: int) -> list[str]:
    """Write out a ledger row of an hourly schedule."""
    begin = datetime.fromisoformat(first.partition("[")[0]).replace(tzinfo=UTC)
    keys = [key_of(begin + n * HOUR) for n in range(count)]
    assert keys[-1] == last
    return keys


@pytest.fixture(scope="module", params=NEWS)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A planner that lived with the old data, then with the new."""
    news, folder = NEWS[request.param], tmp_path_factory.mktemp("story")
    database = folder / "rota.db"
    live(database, write_zone(folder / "old", None), BEGIN, news.learned)
    live(database, write_zone(folder / "new", news), news.learned, END)
    return Story(news, database)


def test_each_nominal_time_has_one_slot_and_none_is_lost(story: Story) -> None:
    first = BEGIN + BEFORE * HOUR + HOUR / 2
    last = END + story.news.ahead * HOUR
    expected = [key_of(first + n * HOUR) for n in range((last - first) // HOUR + 1)]
    for task in HOURLY:
        found = slots_of(story.database, task)
        assert sorted([*found.runs, *found.ledger]) == expected, task
    busy = slots_of(story.database, "busy")
    assert list(busy.runs) == expected[:1]
    assert "overlap" in busy.reasons <= {"overlap", "missed"}


def test_a_slot_to_come_is_on_time_by_the_new_data(story: Story) -> None:
    daily, once = (slots_of(story.database, task) for task in ("daily", "once"))
    for wall in (utc(10, 9), utc(11, 9)):
        at = story.news.at(wall)
        if at > story.news.learned:
            assert daily.runs[key_of(wall)] == (at, "slot")
            if wall.day == 10:
                assert once.runs == {"g1:0": (at, "slot")}
    assert len(once.runs) == 1
    assert not daily.ledger


def test_what_follows_elapsed_time_pauses_only_while_its_names_are_taken(story: Story) -> None:
    news = story.news
    known_after = news.learned > news.change
    pause = HOUR * max(BEFORE - news.ahead, 0) if known_after else timedelta()
    halves = [BEGIN + HOUR / 2 + n * HOUR for n in range((END - BEGIN) // HOUR)]
    expected = [at for at in halves if not news.learned < at <= news.learned + pause]
    found = slots_of(story.database, "elapsed")
    assert sorted(at for at, _ in found.runs.values()) == expected
    assert found.ledger == []
