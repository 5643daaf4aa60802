"""Cron against cronsim, which follows Debian's cron.

Deliberate differences, kept out of the comparison: Rota moves a slot in a gap to the end of the
gap once, where cronsim also yields the others of that gap at that instant; a line that follows
elapsed time makes up for a day that a gap took whole, in Rota alone; Rota refuses steps larger than
their field and a star inside a list.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.model.schedules import Slot
from rota.timing.rule_builders import cron
from rota.timing.timetable import timetable


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    step = st.integers(1, high - low)
    # cronsim takes 5-5/2 for 5/2, so stepped ranges here have two ends.
    wide = span.filter(lambda text: len(set(text.split("-"))) > 1)
    single = st.one_of(number.map(str), span, st.builds("{}/{}".format, wide, step))
    return st.one_of(
        st.just("*"),
        step.map(lambda n: f"*/{n}"),
        number.map(str),
        st.lists(single, min_size=1, max_size=3).map(",".join),
    )


weekdays = fields(0, 7) | st.sampled_from(
    ["5L", "1#1", "2#5", "0#3", "MON-FRI", "SUN", "7L", "1#2,4L"]
)
lines = st.tuples(
    fields(0, 59),
    fields(0, 23),
    st.just("*") | fields(1, 31) | st.sampled_from(["L", "1,L"]),
    st.just("*") | fields(1, 12) | st.sampled_from(["JAN-MAR", "FEB"]),
    st.just("*") | weekdays,
).map(" ".join)
instants = st.datetimes(
    min_value=datetime(2000, 1, 1),
    max_value=datetime(2035, 1, 1),
    timezones=st.just(UTC),
)


def compare(line: str, zone: str, after: datetime, n: int) -> None:
    try:
        table = timetable(cron(line, timezone=zone))
    except Invalid:
        assume(condition=False)
        raise
    where = ZoneInfo(zone)
    theirs: list[datetime] = []
    for moment in CronSim(line, after.astimezone(where)):
        instant = moment.astimezone(UTC)
        if instant not in theirs:
            theirs.append(instant)
        if len(theirs) == n:
            break
    ours = [slot.at for slot in table.take(after, n + 1) if not made_up(line, slot, where)]
    assert ours[:n] == theirs[:n]


def made_up(line: str, slot: Slot, where: ZoneInfo) -> bool:
    """Whether a slot of a line by elapsed time stands where the wall does not show its name."""
    by_elapsed_time = any(field.startswith("*") for field in line.split()[-5:-3])
    return by_elapsed_time and not slot.key.startswith(
        f"{slot.at.astimezone(where):%Y-%m-%dT%H:%M}"
    )


@settings(max_examples=250, deadline=None)
@given(lines, instants)
def test_in_utc_both_agree(line: str, after: datetime) -> None:
    compare(line, "UTC", after, 8)


@settings(max_examples=80, deadline=None)
@given(lines, instants, st.integers(0, 59))
def test_with_seconds_both_agree(line: str, after: datetime, second: int) -> None:
    compare(f"{second} {line}", "UTC", after, 5)


@settings(max_examples=250, deadline=None)
@given(
    lines,
    st.sampled_from(
        [
            ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
            ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
            ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
            ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
            # Not Lord Howe, whose clock moves by half an hour: cronsim takes the repeated half
            # hour for another one. The search by the minute covers it.
            ("Asia/Kolkata", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
        ]
    ),
    st.integers(-30, 30),
)
def test_across_clock_changes_both_agree(
    line: str, change: tuple[str, datetime], hours: int
) -> None:
    zone, moment = change
    local = (moment + timedelta(hours=hours)).astimezone(ZoneInfo(zone))
    # cronsim forgets the pass of an ambiguous start, so the comparison starts elsewhere.
    assume(local.replace(fold=0).utcoffset() == local.replace(fold=1).utcoffset())
    compare(line, zone, local.astimezone(UTC), 8)
