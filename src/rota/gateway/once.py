"""Once: a write under a name is noted, passed on, and ever after answered as it was."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from rota.gateway.bodies import parts_of
from rota.gateway.effects import LONGEST, Effects, Full, Key, Note, key_of
from rota.gateway.exchanging import Exchange, Request, given_up, noted
from rota.gateway.heads import EFFECT, Answering, BadHead, Body, handed_back
from rota.gateway.named import (
    ALREADY,
    DONE,
    UNKNOWN,
    after,
    beginning,
    check_known,
    check_length,
    forgotten,
    full,
    held,
    judged,
    kept,
    request_of,
    unknown,
    whole,
)
from rota.gateway.permits import Spare, Spent
from rota.gateway.refusing import Turned

FAULTS = (BadHead, Turned, Spent, OSError, EOFError, asyncio.LimitOverrunError)
"""What can go wrong while an answer is awaited."""


@dataclass
class Once:
    """What writes under a name are carried out with."""

    exchange: Exchange
    effects: Effects

    async def serve(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        request: Request,
        name: str,
        begun: asyncio.Event,
    ) -> bool:
        """Serve a write: pass it on, or tell what was answered, or why neither is done."""
        asking, permit, waits = request.asking, request.permit, self.exchange.waits
        permit.ask()
        check_length(asking)
        async with permit.turns:
            if not asking.body.empty:
                await self.exchange.go_on(writer, asking)
            body = await whole(parts_of(reader, asking.body, waits.body))
            digest = request_of(asking, request.upstream, request.target, body)
            key = key_of(permit.space, permit.scope, name)
            async with self.effects.alone(key):
                note = await noted(self.effects.find(key))
                if note is None:
                    if self.effects.is_forgotten(permit.since):
                        raise forgotten(name)
                    await self._first(writer, request, body, name, key, digest, begun)
                else:
                    known = check_known(name, note, digest)
                    begun.set()
                    await self.exchange.hand_back(
                        writer, request, kept(note, known), after(known), (EFFECT, ALREADY),
                        stays=asking.stays,
                    )  # fmt: skip
        return asking.stays

    async def _first(
        self,
        writer: StreamWriter,
        request: Request,
        body: bytes,
        name: str,
        key: Key,
        digest: str,
        begun: asyncio.Event,
    ) -> None:
        """Pass a write on that was never begun; what is not reached, or not noted, never was.

        The connection is a new one: an upstream may just be ending one that it knows already.
        """
        asking, source = held(request.asking, body)
        request = request._replace(asking=asking)
        request.check_size()
        out = await self.exchange.connect(request.upstream)
        try:
            await self._begin(request, key, digest)
            try:
                answering, first, rest = await self._heard(writer, request, source, out, name)
                long = len(first) > LONGEST
                said = Note(
                    digest, answering.status, handed_back(answering), None if long else first
                )
                mark = await self._kept(key, said)
            finally:
                self.effects.close(key)
            begun.set()
            framed = answering if long else replace(answering, body=Body(length=len(first)))
            await self.exchange.hand_back(
                writer, request, framed, after(first, rest), (EFFECT, mark), stays=asking.stays
            )
        finally:
            out.drop()

    async def _begin(self, request: Request, key: Key, digest: str) -> None:
        """Note that a write is about to be passed on."""
        await self.exchange.note_write(request)
        try:
            await noted(self.effects.begin(key, digest))
        except Full:
            raise full() from None
        if request.upstream.secret is not None:
            self.exchange.used(request.upstream.secret)

    async def _heard(
        self, writer: StreamWriter, request: Request, source: StreamReader, out: Spare, name: str
    ) -> tuple[Answering, bytes, AsyncIterator[bytes]]:
        """Return the head of the answer, as much of its body as can be kept, and the rest."""
        sending = asyncio.ensure_future(self.exchange.send(source, writer, request, out))
        try:
            answering = await self.exchange.answer(out.reader, request.asking.method, sending)
            parts = parts_of(out.reader, answering.body, self.exchange.waits.answer)
            return answering, await beginning(parts), parts
        except FAULTS:
            raise unknown(name) from None
        finally:
            await given_up(sending)

    async def _kept(self, key: Key, note: Note) -> str:
        """Keep an answer before it is told, and return what it says of the effect."""
        mark = judged(note.status)
        if mark != UNKNOWN:
            try:
                await self.effects.end(key, note if mark == DONE else None)
            except OSError:
                return UNKNOWN
        return mark
