"""Channels: how a message leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from rota.model.notifications import Delivery
from rota.ports.plugins import Plugin


class ChannelRefused(Exception):
    """The channel said no; `final` means that trying again cannot help."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class Channel(Protocol):
    """Sends messages.

    Returning means the other side took the message. ChannelRefused means it did not. Anything else,
    a timeout above all, means that nobody knows.
    """

    name: str

    async def send(self, delivery: Delivery) -> None:
        """Send one message, with its dedupe key where the other side knows such a thing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPlugin(Plugin):
    """What an entry point of the group `rota.channels` names."""

    make: Callable[[Any], Channel]
