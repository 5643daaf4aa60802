"""The channels that messages can leave by."""

from __future__ import annotations

from rota.channels.log.channel import LogChannel
from rota.ports.channel import Channel


def every_channel() -> dict[str, Channel]:
    """Return each channel by its name."""
    channels: tuple[Channel, ...] = (LogChannel(),)
    return {channel.name: channel for channel in channels}
