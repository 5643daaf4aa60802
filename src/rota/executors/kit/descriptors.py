"""Descriptors: a daemon takes as many as it may, and programs have what it was given itself.

A hundred keepers need some hundreds. Programs that wait with select(2) cannot use one above 1023,
and some close every one they may have, so they are given no more than usual.
"""

from __future__ import annotations

import resource
from functools import cache

MOST = 65_536


@cache
def usual_files() -> int:
    """Return how many files this process could have open before it took more."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def take_descriptors() -> None:
    """Let this process have as many files open as it may; called once by a daemon."""
    usual, (_, hard) = usual_files(), resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if usual != resource.RLIM_INFINITY and usual < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
