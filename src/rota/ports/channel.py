"""Channels: how messages reach people."""

from __future__ import annotations

from typing import Protocol

from rota.model.notifications import Delivery


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
