"""Mail that an attempt defers: with everything that a channel needs to send it."""

import pytest

from rota.errors import Invalid
from rota.model.attempts import Failed, Succeeded
from rota.model.notifications import MailFields
from rota.store.plans import promote_delayed
from rota.store.views import list_deliveries

ORIGINAL = {
    "message_id": "<c@example.org>",
    "references": ["<a@example.org>", "<b@example.org>"],
    "subject": "Invoice",
}


async def answering(talkers, **policy):
    """Return an attempt that was made for a mail."""
    task = await talkers.task(thread="email:ann", **policy)
    await talkers.bench.enqueue(talkers.bench.batch(task, [{"mail": ORIGINAL}], thread="email:ann"))
    return await talkers.next()


async def test_a_deferred_mail_answers_what_its_run_was_given(talkers):
    agent = await answering(talkers)
    await agent("defer_message", text="<p>Paid.</p>", format="html")
    assert await talkers.store.read(list_deliveries, None, 10) == []
    assert await agent.end()
    (sent,) = await talkers.store.read(list_deliveries, None, 10)
    assert (sent.channel, sent.target, sent.body) == ("email", "ann", "<p>Paid.</p>")
    assert sent.mail == MailFields(
        subject="Re: Invoice",
        format="html",
        in_reply_to="<c@example.org>",
        references=("<a@example.org>", "<b@example.org>", "<c@example.org>"),
    )


async def test_a_mail_that_answers_nothing_is_fresh_and_an_unknown_format_is_plain(small):
    agent = await small.begin(await small.task(deliver_to="log:"))
    await agent("defer_message", text="Hi", to="email:ann", subject="Hello", format="markdown")
    assert await agent.end()
    sent = next(
        d for d in await small.store.read(list_deliveries, None, 10) if d.channel == "email"
    )
    assert sent.mail == MailFields(subject="Hello", format="plain")
    shown = await small.person("show_run", run=agent.run_id)
    mails = [d["mail"] for d in shown["deliveries"] if d["channel"] == "email"]
    assert mails == [{"subject": "Hello", "format": "plain", "in_reply_to": None, "references": []}]


async def test_a_mail_without_a_body_is_ignored_with_a_reply(small):
    agent = await answering(small)
    with pytest.raises(Invalid, match="text"):
        await agent("defer_message", subject="Nothing")
    with pytest.raises(Invalid, match="text"):
        await agent("defer_message", subject="Nothing", text="")
    assert await agent.end()
    assert await small.store.read(list_deliveries, None, 10) == []


async def test_what_is_left_of_a_mail_where_there_is_none_is_dropped_with_a_warning(small):
    agent = await small.begin(await small.task(deliver_to="log:"))
    put = await agent("defer_message", text="Hi", subject="Hello", format="html")
    assert "log does not support mail" in put["warning"]
    assert (await agent("defer_message", text="Bare"))["warning"] is None
    assert await agent.end()
    assert all(d.mail is None for d in await small.store.read(list_deliveries, None, 10))


async def test_a_failed_attempt_sends_no_mail_and_a_retried_one_sends_it_once(talkers):
    from rota.model.tasks import Retry

    agent = await answering(talkers, retry=Retry(attempts=2))
    await agent("defer_message", text="Paid.", name="answer")
    assert await agent.end(Failed(code="x", message="no"))
    talkers.clock.advance(minutes=5)
    await talkers.store.write(promote_delayed, 10)
    again = await talkers.next()
    await again("defer_message", text="Paid again.", name="answer")
    assert await again.end()
    assert [d.body for d in await talkers.store.read(list_deliveries, None, 10)] == ["Paid again."]


async def test_a_result_that_holds_a_mail_is_sent_as_that(small):
    agent = await small.begin(await small.task(deliver_to="email:ann"))
    told = r'"Sure: {\"subject\": \"S\", \"body\": \"B\", \"format\": \"html\"}"'
    assert await agent.end(Succeeded(result=told))
    (sent,) = await small.store.read(list_deliveries, None, 10)
    assert (sent.body, sent.mail) == ("B", MailFields(subject="S", format="html"))


async def test_a_result_in_prose_is_sent_as_plain_text(small):
    agent = await small.begin(await small.task(deliver_to="email:ann"))
    assert await agent.end(Succeeded(result='"All is well."'))
    (sent,) = await small.store.read(list_deliveries, None, 10)
    assert (sent.body, sent.mail) == ("All is well.", MailFields())
