"""Writes messages to the log."""

from __future__ import annotations

import logging

from rota.model.notifications import Delivery
from rota.ports.channel import ChannelPlugin

log = logging.getLogger(__name__)


class LogChannel:
    """Accepts all messages."""

    name = "log"

    async def send(self, delivery: Delivery) -> None:
        """Write one message as one line."""
        fields: dict[str, object] = {
            "target": delivery.target, "body": delivery.body, "run_id": delivery.run_id,
        }  # fmt: skip
        if delivery.attachments:
            fields["files"] = [file.name for file in delivery.attachments]
        log.info("message.sent", extra=fields)


PLUGIN = ChannelPlugin(make=lambda _settings: LogChannel())
