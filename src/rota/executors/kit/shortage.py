"""Shortage: what fails because the machine has run out of something is told as that."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from rota.errors import Exhausted

WANTING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
)


@contextmanager
def told_if_short(*, unbegun: bool) -> Iterator[None]:
    """Raise Exhausted where a machine lacks something, if no program of an attempt has begun."""
    try:
        yield
    except OSError as fault:
        if not unbegun or fault.errno not in WANTING:
            raise
        raise Exhausted(f"this machine has run out: {fault.strerror}") from fault
