"""Zone names, good and hostile."""

from __future__ import annotations

import pytest

from rota.errors import Invalid
from rota.timing.zones import zone


@pytest.mark.parametrize(
    "name", ["UTC", "Europe/Berlin", "America/Argentina/Ushuaia", "Etc/GMT+5", "Antarctica/Troll"]
)
def test_an_iana_name_is_a_zone(name: str) -> None:
    assert zone(name).key == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "../../etc/passwd",
        "/etc/localtime",
        "localtime",
        "posixrules",
        "Europe/../Europe/Berlin",
        "Europe",
        "Europe/",
        "tzdata.zi",
        "zone.tab",
        "\0",
        "Europe/Berlin\0",
        "x" * 1_000_000,
        "CEST+",
        "Mars/Base",
        "\ud800",
    ],
)
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(Invalid) as caught:
        zone(name)
    assert caught.value.field == "timezone"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("utc", "UTC"),
    ],
)
def test_a_near_miss_is_answered_with_the_name_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(Invalid, match=f"did you mean {meant}"):
        zone(name)
