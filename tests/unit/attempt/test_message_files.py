"""Files of messages lie in the mailbox of a try before its program starts, or it does not start."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from rota.errors import Invalid, Unavailable
from rota.flow.define.messages import NewAttachment, say
from rota.flow.define.runs import answer_question
from rota.flow.settle import settle_attempts
from rota.model.attempts import Failed, Succeeded
from rota.model.sessions import SessionFilter
from rota.model.threads import MAX_FILES_BYTES, MAX_MESSAGE
from rota.rules.permissions import LOCAL
from rota.store.attempts import list_kept_attempts
from rota.store.sessions import list_sessions
from rota.store.views import list_questions
from tests.unit.attempt.test_conversation import AGENTS, HERE, answering, claim
from tests.unit.attempt.test_mailbox import FakeMailboxes
from tests.unit.attempt.test_relaunch import DONE, OVERLOAD, House, Trial, line, said

PHOTO = NewAttachment("photo.png", None, b"bytes")


class Mailboxes(FakeMailboxes):
    """Mailboxes that note what lies there, by the try it lies there for."""

    def __init__(self, yard):
        super().__init__(yard)
        self.brought = []
        self.faults = []
        self.lost = frozenset()

    async def put_files(self, kept, message):
        if self.faults:
            raise self.faults.pop()
        self.brought.append((kept.nonce, message.id, len(self.yard.started)))
        return replace(message, lost=self.lost)

    async def put_message(self, run_id, epoch, message, told):
        return None


def house(desk, yard):
    """Return a house with mailboxes."""
    boxes = Mailboxes(yard)
    made = House(desk, yard, mailboxes=boxes)
    made.boxes = boxes
    return made


async def send(desk, text="Look.", *files, **more):
    return await say(desk.store, LOCAL, AGENTS, HERE, text, space="main", sender="Ann",
                     files=files or (PHOTO,), **more)  # fmt: skip


async def test_files_are_there_before_the_program_and_it_is_told_where(desk):
    await answering(desk)
    message = await send(desk)
    yard = Trial(said(line("session", id="s-1") + DONE))
    made = house(desk, yard)
    assert await made.run(await claim(desk)) == Succeeded(result='"done"')
    assert made.boxes.brought == [(yard.nonces[0], message.id, 0)]
    told = yard.started[0].stdin.decode()
    path = f"/mailbox/{yard.nonces[0]}/in/files/{message.id}/photo.png"
    assert f'media_type="image" media_mimetype="image/png" media_path="{path}">Look.<' in told
    (session,) = await desk.store.read(list_sessions, SessionFilter())
    assert session.title == "Ann: Look. [photo.png]"


async def test_a_further_try_finds_them_in_its_own_mailbox(desk):
    await answering(desk)
    message = await send(desk, "")
    yard = Trial(said(OVERLOAD, code=1), said(DONE))
    made = house(desk, yard)
    await made.run(await claim(desk))
    assert made.boxes.brought == [(nonce, message.id, at) for at, nonce in enumerate(yard.nonces)]
    for nonce, command in zip(yard.nonces, yard.started, strict=True):
        assert f'media_path="/mailbox/{nonce}/in/files/' in command.stdin.decode()


async def test_files_that_cannot_be_written_fail_the_attempt_and_another_may_follow(desk):
    await answering(desk)
    message = await send(desk)
    yard = Trial(said(DONE))
    made = house(desk, yard)
    why = f"the files of message {message.id} cannot be written: no space left on device"
    made.boxes.faults.append(Unavailable(why))
    given = await claim(desk)
    outcome = await made.run(given)
    assert outcome == Failed(code="files_unavailable", message=why, retryable=True)
    assert yard.started == []
    assert await desk.store.read(list_kept_attempts, yard.home) == []
    assert await made.run(given) == Succeeded(result='"done"')
    assert [number for _, number, _ in made.boxes.brought] == [message.id]


async def test_a_file_that_is_damaged_keeps_nobody_from_reading_the_rest(desk):
    await answering(desk)
    message = await send(desk, "Look.", PHOTO, PHOTO._replace(name="plan.pdf"))
    yard = Trial(said(DONE))
    made = house(desk, yard)
    made.boxes.lost = frozenset({"photo.png"})
    assert await made.run(await claim(desk)) == Succeeded(result='"done"')
    told = yard.started[0].stdin.decode()
    assert 'media_name="photo.png" media_error="this file is damaged' in told
    assert f'in/files/{message.id}/plan.pdf"></message>' in told
    assert told.count("media_path") == 1


async def test_who_has_no_mailbox_is_told_names_alone(desk):
    await answering(desk)
    await send(desk)
    yard = Trial(said(DONE))
    await House(desk, yard).run(await claim(desk))
    told = yard.started[0].stdin.decode()
    assert 'media_mimetype="image/png" media_name="photo.png">Look.<' in told
    assert "media_path" not in told


async def test_a_run_that_has_asked_is_told_again_where_the_files_are(desk):
    await answering(desk)
    message = await send(desk)
    asks = line("session", id="s-1") + line("question", text="Pay it?")
    yard = Trial(said(asks), said(DONE))
    made = house(desk, yard)
    given = await claim(desk)
    await settle_attempts(desk.store, [(given, await made.work.run(given))], Random(1))
    (question,) = await desk.store.read(list_questions, [message.reader])
    await answer_question(desk.store, LOCAL, question.id, "yes")
    await made.run(await claim(desk))
    assert yard.rooms[1].session == "s-1"
    told = yard.started[1].stdin.decode()
    assert f'media_path="/mailbox/{yard.nonces[1]}/in/files/{message.id}/photo.png"' in told
    assert "The answer is: yes" in told


@pytest.mark.parametrize(
    ("text", "files"),
    [("", ()), ("x" * (MAX_MESSAGE + 1), (PHOTO,)), ("x", (PHOTO,) * 11),
     ("x", (PHOTO, PHOTO)), ("x", (PHOTO._replace(name="a/b"),)),
     ("x", (PHOTO._replace(content=bytes(MAX_FILES_BYTES)), NewAttachment("b", None, b"x")))],
)  # fmt: skip
async def test_what_cannot_be_sent_is_refused(desk, text, files):
    await answering(desk)
    with pytest.raises(Invalid):
        await say(desk.store, LOCAL, AGENTS, HERE, text, space="main", files=files)
