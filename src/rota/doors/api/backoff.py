"""Who guesses waits: bad keys from one place are answered more and more slowly."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

FREE_GUESSES = 10
LONGEST_SECONDS = 60.0
FORGOTTEN_SECONDS = 600.0
MOST_PLACES = 10_000
PREFIX = 64
"""A network of IPv6 is one place, however many addresses it has."""


class Backoff:
    """Counts bad keys by place; a good key is never held up."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._places: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def waits(self, address: str) -> float:
        """Return how many seconds a place has still to wait before its next guess."""
        count, last = self._places.get(place_of(address), (0, 0.0))
        if count < FREE_GUESSES:
            return 0.0
        wait = min(2.0 ** (count - FREE_GUESSES), LONGEST_SECONDS)
        return max(0.0, last + wait - self._monotonic())

    def failed(self, address: str) -> None:
        """Count a bad key."""
        now = self._monotonic()
        place = place_of(address)
        count, last = self._places.pop(place, (0, now))
        count = 0 if now - last > FORGOTTEN_SECONDS else count
        self._places[place] = (min(count + 1, FREE_GUESSES + 16), now)
        while len(self._places) > MOST_PLACES:
            self._places.popitem(last=False)


def place_of(address: str) -> str:
    """Return what counts as one place: an address of IPv4, a network of IPv6."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return f"{int(found) >> (128 - PREFIX):x}/{PREFIX}"
    return str(found)
