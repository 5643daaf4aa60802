"""Attempts that have asked a person and go on: told to end their turn, then ended politely."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rota.flow.execute.minding import Minding
from rota.flow.execute.patiently import patiently
from rota.model.keeping import Kept
from rota.ports.talking import Talking

log = logging.getLogger(__name__)

ASKED_MICROS = 60 * 1_000_000
"""How long a program may go on after it has asked: time to end its turn, and no more."""
GRACE_SECONDS = 10.0
HAS_ASKED = "it has asked a person, and did not end its turn"


async def has_asked(store: Talking, kept: Kept) -> bool:
    """Tell whether an attempt waits for a person already: then nothing is tried again."""
    return bool(await patiently(lambda: store.asked_of([kept.run_id])))


async def end_overstayers(store: Talking, minding: Minding, known: Sequence[Kept]) -> int:
    """End the programs of a home that asked long ago; their runs wait for the answer as ever.

    A keeper that was asked before takes no notice, so this is repeated until the program is gone.
    """
    going = [kept for kept in known if kept.current and kept.until is None]
    if not going:
        return 0
    late = set(await store.overstaying(going[0].home, store.now() - ASKED_MICROS))
    ended = [kept for kept in going if (kept.run_id, kept.epoch) in late]
    for kept in ended:
        log.info("run.overstays", extra={"run_id": kept.run_id, "attempt": kept.epoch})
        minding.cancel(kept, GRACE_SECONDS, HAS_ASKED)
    return len(ended)
