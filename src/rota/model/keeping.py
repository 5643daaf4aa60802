"""Kept attempts: those whose processes outlive the daemon that started them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from rota.model.events import EventName
from rota.model.ids import Epoch, RunId


class Stream(StrEnum):
    """What a program writes to."""

    OUT = "out"
    ERR = "err"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An attempt under a keeper, and how much of its output is on record.

    `home` is where its keeper's folder is; `nonce` and `boot` tell it from any other that was ever
    there. `current` is false once its run has gone on without it.
    """

    run_id: RunId
    epoch: Epoch
    home: str
    nonce: str
    boot: str
    place: str
    out_at: int = 0
    err_at: int = 0
    current: bool = True


class Happened(NamedTuple):
    """Something that an attempt did or said, to be recorded as an event."""

    name: EventName
    data: Mapping[str, Any]


class Heard(NamedTuple):
    """A part of a stream that was read, from and up to an offset, and what it comes to."""

    stream: Stream
    start: int
    end: int
    happened: tuple[Happened, ...] = ()
