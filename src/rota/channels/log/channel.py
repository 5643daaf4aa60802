"""Writes messages to the log."""

from __future__ import annotations

import logging

from rota.model.notifications import Delivery
from rota.ports.channel import ChannelPlugin

log = logging.getLogger(__name__)


class LogChannel:
    """Accepts every message."""

    name = "log"

    async def send(self, delivery: Delivery) -> None:
        """Write one message as one line."""
        told: dict[str, object] = {
            "target": delivery.target, "body": delivery.body, "run_id": delivery.run_id,
        }  # fmt: skip
        if delivery.attachments:
            told["files"] = [file.name for file in delivery.attachments]
        log.info("message.sent", extra=told)


PLUGIN = ChannelPlugin(make=lambda _settings: LogChannel())
