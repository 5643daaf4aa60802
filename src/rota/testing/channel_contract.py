"""What every channel must do, whatever it sends to."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rota.model.ids import DeliveryId, RunId
from rota.model.notifications import Attachment, Delivery, DeliveryKind, DeliveryState, MailFields
from rota.ports.channel import Channel, ChannelRefused

NAME = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)
PATIENCE = 30.0
BODIES = ("", "two\nlines\r\n", "\x00\x1b[2J\u202e", "Grüße 🙂", "x" * 64 * 1024)
"""Whatever a program may write, up to the length that Rota lets through."""


class ChannelContract:
    """For a `channel`, and a `target` that it can send to.

    Override the fixture `target` for a channel that needs one. Nothing may be raised but
    ChannelRefused: anything else means that nobody knows whether the message was sent.
    """

    @pytest.fixture
    def target(self) -> str:
        """Return whom it sends to."""
        return ""

    @pytest.fixture
    def delivery(self, channel: Channel, target: str) -> Delivery:
        """Return a message for the channel."""
        now = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
        return Delivery(
            id=DeliveryId(1),
            run_id=RunId(1),
            channel=channel.name,
            target=target,
            body="hello",
            dedupe_key="run-1:hello",
            state=DeliveryState.SENDING,
            tries=1,
            available_at=now,
            created_at=now,
            sent_at=None,
            error=None,
        )

    def test_its_name_can_stand_before_a_colon(self, channel: Channel) -> None:
        assert NAME.fullmatch(channel.name)

    def test_a_message_is_accepted(self, channel: Channel, delivery: Delivery) -> None:
        assert _sent(channel, delivery) == [True]

    def test_the_same_message_may_be_sent_again(self, channel: Channel, delivery: Delivery) -> None:
        assert _sent(channel, delivery, delivery) == [True, True]

    @pytest.mark.parametrize("body", BODIES, ids=["empty", "lines", "control", "unicode", "long"])
    def test_any_text_is_accepted_or_refused(
        self, channel: Channel, delivery: Delivery, body: str
    ) -> None:
        _sent(channel, replace(delivery, body=body))

    @pytest.mark.parametrize("kind", list(DeliveryKind))
    def test_every_kind_is_accepted(
        self, channel: Channel, delivery: Delivery, kind: DeliveryKind
    ) -> None:
        assert _sent(channel, replace(delivery, kind=kind)) == [True]

    def test_a_message_without_a_run_is_accepted(
        self, channel: Channel, delivery: Delivery
    ) -> None:
        assert _sent(channel, replace(delivery, run_id=None)) == [True]

    def test_attachments_and_mail_fields_are_accepted_or_refused(
        self, channel: Channel, delivery: Delivery
    ) -> None:
        file = Attachment(name="report.pdf", size=3, sha256="0" * 64)
        mail = MailFields(subject="Report", in_reply_to="<1@example.org>")
        _sent(channel, replace(delivery, files=(file,), mail=mail))

    def test_messages_sent_at_once_are_independent(
        self, channel: Channel, delivery: Delivery
    ) -> None:
        many = [replace(delivery, id=DeliveryId(n), dedupe_key=f"run-{n}") for n in range(1, 9)]

        async def send_all() -> list[None]:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.gather(*(channel.send(each) for each in many))

        assert asyncio.run(send_all()) == [None] * len(many)

    def test_sending_can_be_cancelled(self, channel: Channel, delivery: Delivery) -> None:
        async def cancelled() -> bool:
            sending = asyncio.ensure_future(channel.send(delivery))
            await asyncio.sleep(0)
            if sending.done():  # it does not wait for anything
                return True
            sending.cancel()
            done, _ = await asyncio.wait({sending}, timeout=PATIENCE)
            return bool(done) and (sending.cancelled() or sending.exception() is None)

        assert asyncio.run(cancelled())


def _sent(channel: Channel, *deliveries: Delivery) -> list[bool]:
    """Send messages one after the other; return which of them the channel accepted."""

    async def send() -> list[bool]:
        accepted = []
        async with asyncio.timeout(PATIENCE):
            for delivery in deliveries:
                try:
                    await channel.send(delivery)
                except ChannelRefused as refusal:
                    if not str(refusal):
                        pytest.fail("a refusal says why")
                    accepted.append(False)
                else:
                    accepted.append(True)
        return accepted

    return asyncio.run(send())
