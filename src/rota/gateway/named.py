"""Writes under a name: which is which, what a known one is told, and what an answer says of it."""

from __future__ import annotations

import hashlib
import json
import re
from asyncio import StreamReader
from collections.abc import AsyncIterator
from dataclasses import replace

from rota.gateway.effects import BEGUN, LONGEST, MOST, MOST_BYTES, UNREADABLE, Note
from rota.gateway.heads import EFFECT, Answering, Asking, BadHead, Body
from rota.gateway.refusing import Turned
from rota.gateway.upstreams import READS, Upstream

NAME = re.compile(r"[!-.0-~]{1,200}", re.ASCII)
DONE, ALREADY, REFUSED, UNKNOWN = "done", "already-done", "refused", "unknown"
FIRST_ELSEWHERE, FIRST_REFUSAL, FIRST_FAILURE, TIMED_OUT = 300, 400, 500, 408
SEE_OTHER = 303
"""Tells where what was done is to be seen."""
NOT_HERE = frozenset({307, 308})
"""Tell to do the same elsewhere, so it was not done here."""


def named(asking: Asking) -> str | None:
    """Return the name of a write that is to happen once; None if it has none."""
    names = list(asking.all(EFFECT))
    if not names:
        return None
    if len(names) > 1 or NAME.fullmatch(names[0]) is None:
        raise BadHead("Rota-Effect is one name: 1 to 200 plain characters, no space and no slash")
    if asking.method in READS or asking.method == "OPTIONS":
        raise BadHead("Rota-Effect is for writes: a read may be done as often as you like")
    return names[0]


async def whole(parts: AsyncIterator[bytes]) -> bytes:
    """Return the body of a request, which must be known before any of it is passed on."""
    body = await beginning(parts)
    if len(body) > LONGEST:
        raise _too_long()
    return body


async def beginning(parts: AsyncIterator[bytes]) -> bytes:
    """Return what comes, but stop when it is longer than what is kept."""
    held = bytearray()
    async for part in parts:
        held += part
        if len(held) > LONGEST:
            break
    return bytes(held)


async def after(held: bytes, rest: AsyncIterator[bytes] | None = None) -> AsyncIterator[bytes]:
    """Yield what is held already, and then what is still to come."""
    if held:
        yield held
    if rest is not None:
        async for part in rest:
            yield part


def check_length(asking: Asking) -> None:
    """Refuse a request that says that it is too long to be held."""
    if asking.body.length is not None and asking.body.length > LONGEST:
        raise _too_long()


def kept(note: Note, body: bytes) -> Answering:
    """Return the head of an answer as it was kept."""
    return Answering(note.status, note.headers, Body(length=len(body)), stays=True)


def held(asking: Asking, body: bytes) -> tuple[Asking, StreamReader]:
    """Return a request whose body is here, to be sent from where it is held."""
    reader = StreamReader()
    reader.feed_data(body)
    reader.feed_eof()
    told = tuple(pair for pair in asking.headers if pair[0] != "expect")
    return replace(asking, headers=told, body=Body(length=len(body))), reader


def request_of(asking: Asking, upstream: Upstream, target: str, body: bytes) -> str:
    """Return what two requests share only if they are the same: method, address and body."""
    address = f"{upstream.scheme}://{upstream.authority}{target}"
    head = json.dumps([asking.method, address]).encode()
    return hashlib.sha256(head + b"\n" + body).hexdigest()


def check_known(name: str, note: Note, request: str) -> bytes:
    """Return the body that is kept of an effect, or say why it is neither done nor told."""
    if note.request not in {UNREADABLE, request}:
        message = f"{name!r} was another request (method, address or body): take another name"
        raise Turned(409, "effect_differs", message)
    if note.status == BEGUN:
        raise unknown(name)
    if note.body is None:
        message = f"{name!r} is done and was answered {note.status}, too long to keep: look there"
        raise Turned(409, "effect_done", message)
    return note.body


def unknown(name: str) -> Turned:
    """Return what is said of an effect of which nobody knows whether it happened."""
    message = (
        f"{name!r} was begun and no answer is kept: it may have happened, and Rota cannot know; "
        "look there, and if it has not, do it under another name"
    )
    return Turned(409, "effect_unknown", message)


def forgotten(name: str) -> Turned:
    """Return what is said of an effect that may have been forgotten."""
    message = (
        f"this run is older than effects are kept, so {name!r} may have happened before; look "
        "there, and if it has not, do it without Rota-Effect"
    )
    return Turned(409, "effect_unknown", message)


def full() -> Turned:
    """Return what is said where a space may have no more effects."""
    message = f"this space has {MOST} effects, or {MOST_BYTES >> 20} MiB of their answers"
    return Turned(403, "effects_full", f"{message}; they are forgotten after 30 days")


def judged(status: int) -> str:
    """Return what an answer says: done, refused and so not done, or not known.

    Who refuses says that it has not done it. Who fails may have, and so may whoever stands behind a
    server that fails in its place; a server that has the whole request and still waits for it, too.
    Any other redirect is said of what has moved as of what was done.
    """
    if status < FIRST_ELSEWHERE or status == SEE_OTHER:
        return DONE
    if status < FIRST_REFUSAL:
        return REFUSED if status in NOT_HERE else UNKNOWN
    return REFUSED if status < FIRST_FAILURE and status != TIMED_OUT else UNKNOWN


def _too_long() -> Turned:
    message = f"a write with Rota-Effect has {LONGEST >> 20} MiB at most"
    return Turned(413, "effect_too_long", message)
