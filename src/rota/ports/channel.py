"""Channels: how messages reach people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from rota.model.notifications import Delivery
from rota.ports.plugins import Plugin


class ChannelRefused(Exception):
    """The channel rejected a message; `final` means that a retry cannot help."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class Channel(Protocol):
    """Sends messages.

    Returning means that the message was accepted, ChannelRefused that it was not. After any other
    exception, such as a timeout, the outcome is unknown.
    """

    name: str

    async def send(self, delivery: Delivery) -> None:
        """Send one message, with its dedupe key if the other side supports that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPlugin(Plugin):
    """A channel as an entry point of the group `rota.channels` provides it."""

    make: Callable[[Any], Channel]
