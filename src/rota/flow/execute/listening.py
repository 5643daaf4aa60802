"""Listening: what an attempt says goes on record, each byte once, until nothing of it is left."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from rota.errors import Unavailable
from rota.flow.execute.beating import Followed
from rota.flow.execute.hearing import Hearing
from rota.flow.execute.minding import Minding
from rota.flow.execute.outputs import END
from rota.flow.execute.patiently import LOOK_SECONDS, patiently
from rota.model.instants import from_micros
from rota.model.keeping import Ending, ForPeople, Heard, Kept, KeptSession, Reason, Stream
from rota.ports.store import Store
from rota.ports.yard import Yard

log = logging.getLogger(__name__)

PART = 256 * 1024
QUIET_SECONDS = 0.05
"""How long a line stays as it is before its beginning is shown."""
REST_SECONDS = 30.0
"""How long an attempt is left alone that nothing is heard of: what is new rings, and so its end."""
MOST_LOOKED_AT = 1_000
"""Among how many pieces of output the end of one is looked for, which others may have followed."""


class Listening:
    """Hears the attempts of a home; `abandon` is awaited for a run that is another's."""

    def __init__(
        self,
        store: Store,
        yard: Yard,
        minding: Minding,
        abandon: Callable[[Kept], Awaitable[NoReturn]],
        heed: Callable[[Kept, Hearing], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._yard = yard
        self._minding = minding
        self._abandon = abandon
        self._heed = heed
        self.followed: dict[int, Followed] = {}
        """The attempts that are being heard, by their runs."""

    async def to_the_end(
        self, kept: Kept, holder: str, begin: Callable[[], Hearing]
    ) -> tuple[Ending, Hearing]:
        """Record what is said until the attempt has ended and all of it was heard.

        `begin` makes a hearing that has heard nothing; it is fed with what is on record already.
        """
        try:
            ending, hearing = await self._hear(kept, holder, begin)
            await self._record_end(kept, holder, hearing.finish(ending, kept.tries))
            return ending, hearing
        finally:
            self.followed.pop(kept.run_id, None)

    async def _hear(
        self, kept: Kept, holder: str, begin: Callable[[], Hearing]
    ) -> tuple[Ending, Hearing]:
        hearing = await self._caught_up(kept, holder, begin())
        await self._recorded(kept, hearing)
        before, seen = dict(hearing.unfinished), -math.inf
        while True:
            ending = self._minding.look(kept)
            ended = ending is not None
            while heard := await self._heard(kept, hearing, last=ended, before=before):
                stands = await self._record(kept, holder, heard, hearing.news())
                if stands is not None:
                    hearing = await self._caught_up(stands, holder, begin())
                await self._recorded(kept, hearing)
                before = dict(hearing.unfinished)
            if ending is None:
                seen = self._yard.moment()
                news = hearing.unfinished != before and any(hearing.unfinished.values())
                before = dict(hearing.unfinished)
                await self._yard.rung(kept, QUIET_SECONDS if news else REST_SECONDS)
                continue
            ending = replace(ending, ago=min(ending.ago, self._yard.moment() - seen))
            left = await self._minding.swept(kept)
            if left:
                ending = replace(ending, reason=Reason.LOST_UNSWEPT, detail=left, proven=False)
            return ending, hearing

    async def _caught_up(self, kept: Kept, holder: str, hearing: Hearing) -> Hearing:
        """Return a hearing that knows what is on record already; others get their turns."""
        answers: list[ForPeople] = []
        for stream in Stream:
            end = kept.at(stream)
            while hearing.at(stream) < end:
                at = hearing.at(stream)
                data = await self._minding.read(kept, stream, at, min(PART, end - at))
                part = hearing.take(stream, data, known=at + len(data) == end)
                if part is None:
                    hearing.skip(stream, end)  # the spool is shorter: power was lost
                else:
                    answers += (one for one in part.for_people if one.most is None)
                await asyncio.sleep(0)
        if hearing.at(Stream.OUT) or hearing.at(Stream.ERR):
            count = self._store.count_output
            hearing.count_kept(await patiently(lambda: count(kept.run_id, kept.began)))
        if answers:
            await self._tell(kept, holder, answers)
        self.followed[kept.run_id] = Followed(kept, hearing)
        return hearing

    async def _tell(self, kept: Kept, holder: str, answers: Sequence[ForPeople]) -> None:
        """Tell answers that are on record, of which each is told once: it may have been to nobody.

        If the record has moved on, or is another's, whoever records next finds out.
        """
        at = kept.at(Stream.OUT)
        part = Heard(Stream.OUT, at, at, for_people=tuple(answers))
        await patiently(lambda: self._store.hear(kept.run_id, kept.epoch, holder, [part]))

    async def _record_end(self, kept: Kept, holder: str, last: Heard | None) -> None:
        """Record the end of an output once: whoever carries on may find that somebody has."""
        if last is None:
            return

        async def once() -> None:
            newest = await self._store.run_output(kept.run_id, MOST_LOOKED_AT)
            since = from_micros(kept.began)
            if not any(e.at >= since and e.data.get(END) == kept.tries for e in newest):
                await self._store.hear(kept.run_id, kept.epoch, holder, [last])

        await patiently(once)

    async def _recorded(self, kept: Kept, hearing: Hearing) -> None:
        """Note that everything heard is on record, and tell who heeds it."""
        hearing.recorded()
        if self._heed is not None:
            await self._heed(kept, hearing)

    async def _heard(
        self, kept: Kept, hearing: Hearing, *, last: bool, before: Mapping[Stream, int]
    ) -> list[Heard]:
        """Return what is new: whole lines, and the beginning of one that has not grown since."""
        heard = []
        for stream in Stream:
            data = await self._minding.read(kept, stream, hearing.at(stream), PART)
            part = hearing.take(stream, data, last=last and len(data) < PART)
            if part is None and data and len(data) == before[stream]:
                part = hearing.take_part(stream, data)
            if part is not None:
                heard.append(part)
        return heard

    async def _record(
        self, kept: Kept, holder: str, heard: Sequence[Heard], session: KeptSession | None
    ) -> Kept | None:
        """Record what was heard, once: after a lost answer the record says whether it was.

        Where the record stands neither before nor behind it, return how it stands.
        """
        while True:
            try:
                if await self._store.hear(kept.run_id, kept.epoch, holder, heard, session):
                    return None
            except Unavailable as fault:
                log.warning("run.unheard", extra={"run_id": kept.run_id, "error": str(fault)})
                await asyncio.sleep(LOOK_SECONDS)
            rows = await patiently(lambda: self._store.kept_of(self._yard.home))
            stands = next((row for row in rows if row.run_id == kept.run_id), None)
            if stands is None or not stands.current or stands.nonce != kept.nonce:
                await self._abandon(kept)
            elif all(stands.at(part.stream) == part.end for part in heard):
                return None
            elif any(stands.at(part.stream) != part.start for part in heard):
                return stands
