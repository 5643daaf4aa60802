"""RFC 5545 texts that are refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.errors import Invalid
from rota.timing.rule_builders import rrule

LONG_AGO = datetime(1990, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "FREQ=",
        "FREQ=SOMETIMES",
        "INTERVAL=2",
        "FREQ=DAILY;INTERVAL=0",
        "FREQ=DAILY;INTERVAL=-1",
        "FREQ=DAILY;COUNT=0",
        "FREQ=DAILY;COUNT=x",
        "FREQ=DAILY;COUNT=5;UNTIL=20300101T000000Z",
        "FREQ=DAILY;FREQ=DAILY",
        "FREQ=DAILY;BYHOUR=24",
        "FREQ=DAILY;BYMINUTE=60",
        "FREQ=DAILY;BYSECOND=60",
        "FREQ=YEARLY;BYMONTH=13",
        "FREQ=MONTHLY;BYMONTHDAY=0",
        "FREQ=MONTHLY;BYMONTHDAY=32",
        "FREQ=YEARLY;BYYEARDAY=367",
        "FREQ=YEARLY;BYWEEKNO=54",
        "FREQ=MONTHLY;BYSETPOS=1",
        "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=0",
        "FREQ=WEEKLY;BYDAY=1MO",
        "FREQ=DAILY;BYWEEKNO=1",
        "FREQ=WEEKLY;BYMONTHDAY=1",
        "FREQ=DAILY;BYYEARDAY=1",
        "FREQ=YEARLY;BYWEEKNO=1;BYDAY=1MO",
        "FREQ=MONTHLY;BYDAY=XX",
        "FREQ=MONTHLY;BYDAY=0MO",
        "FREQ=DAILY;WKST=XX",
        "FREQ=DAILY;UNTIL=soon",
        "FREQ=DAILY;UNTIL=20300230T000000Z",
        "FREQ=DAILY;X-NAME=1",
        "FREQ=DAILY;BYEASTER=0",
        "EXRULE:FREQ=DAILY",
        "RRULE:FREQ=DAILY\nEXRULE:FREQ=WEEKLY",
        "RRULE:FREQ=DAILY\nRRULE:FREQ=WEEKLY",
        "DTSTART:20260101T000000Z",
        "DTSTART:20260101\nRRULE:FREQ=DAILY",
        "DTSTART;VALUE=DATE:20260101\nRRULE:FREQ=DAILY",
        "DTSTART:00010101T000000Z\nRRULE:FREQ=DAILY",
        "DTSTART:99991231T000000Z\nRRULE:FREQ=DAILY",
        "BEGIN:VEVENT\nRRULE:FREQ=DAILY",
        "DTSTART;TZID=Mars/Base:20260101T000000\nRRULE:FREQ=DAILY",
        "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30",
        "RRULE:FREQ=DAILY\nRDATE;VALUE=PERIOD:20260101T000000Z/PT1H",
        "RRULE:FREQ=DAILY\nEXDATE:",
        "DTSTART:20260101T000000Z\nDTSTART:20260101T000000Z\nRRULE:FREQ=DAILY",
    ],
)
def test_a_bad_rule_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        rrule(text, created_at=LONG_AGO)
    assert caught.value.field == "rrule"
