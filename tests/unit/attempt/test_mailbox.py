"""The mailbox of an attempt: open in time, with all files of its messages, drained at the end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from rota.errors import Invalid, Unavailable
from rota.executors.shared import exec_program, port_forward
from rota.flow.define.messages import NewAttachment, say
from rota.flow.define.runs import answer_question
from rota.flow.define.tasks import put_task
from rota.flow.maintain import rescue
from rota.flow.settle import settle_attempts
from rota.model.attempts import CANNOT_START, Cancelled, ExitReason, Failed, Succeeded
from rota.model.runs import RunState
from rota.model.sessions import SessionFilter
from rota.model.tasks import OnLost
from rota.model.threads import MAX_FILES_BYTES, MAX_MESSAGE, MessageState
from rota.rules.permissions import LOCAL
from rota.store.attempts import list_kept_attempts
from rota.store.sessions import list_sessions
from rota.store.threads import assign_messages, list_messages
from rota.store.views import list_questions
from tests.unit.attempt.keeper_home_fake import FakeYard, assignment, work_on
from tests.unit.attempt.test_conversation import AGENTS, HERE, answering, claim, tell
from tests.unit.attempt.test_relaunch import DONE, OVERLOAD, House, Trial, line, said

# opened and served


class FakeMailboxes:
    """Mailboxes that write down what is done to them."""

    def __init__(self, yard):
        self.yard = yard
        self.done = []
        self.broken = None
        self.stop = None

    def set_callback(self, acknowledged):
        self.acknowledged = acknowledged

    async def open(self, assignment, kept, folder, stop):
        if ("open", folder) not in self.done:
            self.done.append(("open", folder))
        self.started = len(self.yard.started)
        self.stop = stop

    async def close(self, kept, *, drain):
        self.done.append(("close", drain))
        return self.broken

    def release(self, run_id):
        self.done.append(("leave", run_id))


async def test_a_mailbox_is_opened_told_drained_and_left(desk, chance):
    given, yard = await assignment(desk), FakeYard()
    boxes = FakeMailboxes(yard)
    yard.end(b"done\n")
    report = await work_on(desk.store, yard, chance, mailboxes=boxes).run(given)
    assert report.outcome == Succeeded(result='"done"')
    (command,) = yard.started
    folder = command.env["ROTA_MAILBOX"]
    lease, task = given.lease, given.task
    told = {"ROTA_RUN_ID": lease.run_id, "ROTA_ATTEMPT": 1, "ROTA_TASK_ID": task.id,
            "ROTA_SPACE": "main", "ROTA_TRACE_ID": given.trace_id}  # fmt: skip
    assert {name: command.env[name] for name in told} == {n: str(v) for n, v in told.items()}
    assert boxes.done == [("open", folder), ("close", True), ("leave", lease.run_id)]


async def test_a_program_that_misuses_it_is_stopped_and_fails(desk, chance):
    given, yard = await assignment(desk), FakeYard()
    boxes = FakeMailboxes(yard)
    running = asyncio.ensure_future(work_on(desk.store, yard, chance, mailboxes=boxes).run(given))
    while not yard.started:
        await asyncio.sleep(0)
    boxes.broken = "it wrote too much"
    boxes.stop("it wrote too much")
    outcome = (await running).outcome
    assert outcome == Failed(code="mailbox_misused", message="it wrote too much", retryable=False)
    assert yard.cancelled == ["it wrote too much"]


async def test_what_somebody_stopped_is_not_drained(desk, chance):
    given, yard = await assignment(desk), FakeYard()
    boxes = FakeMailboxes(yard)
    running = asyncio.ensure_future(work_on(desk.store, yard, chance, mailboxes=boxes).run(given))
    while not yard.started:
        await asyncio.sleep(0)
    running.cancel()
    assert isinstance((await running).outcome, Cancelled)
    assert ("close", False) in boxes.done


async def test_who_lets_go_leaves_the_mailbox_to_the_next(desk, chance):
    given, yard = await assignment(desk), FakeYard()
    boxes = FakeMailboxes(yard)
    work = work_on(desk.store, yard, chance, mailboxes=boxes)
    running = asyncio.ensure_future(work.run(given))
    while not yard.started:
        await asyncio.sleep(0)
    work.detach(given.lease.run_id)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [what for what, _ in boxes.done] == ["open", "leave"]


async def test_without_mailboxes_nobody_is_told_of_one(desk, chance):
    given, yard = await assignment(desk), FakeYard()
    yard.end(b"done\n")
    await work_on(desk.store, yard, chance).run(given)
    assert "ROTA_MAILBOX" not in yard.started[0].env


# files of messages

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
    (question,) = await desk.store.read(list_questions, [message.reader_run_id])
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


# messages that nobody has read

NO_PROGRAM = b"cannot start think: No such file or directory\n"


class Refusing(FakeYard):
    """A yard where nothing can be started."""

    async def start(self, *given):
        raise Unavailable("there is no executor 'x' here")


async def ended(desk, yard):
    """Let the next run come to its end in a yard; return its id."""
    given = await claim(desk)
    report = await House(desk, yard).work.run(given)
    assert await settle_attempts(desk.store, [(given, report)], Random(1)) == [True]
    return given.lease.run_id


async def states(desk):
    found = await desk.store.read(list_messages, HERE, None, 1 << 62, 10)
    return [(message.body, message.state) for message in reversed(found)]


def failing(err=NO_PROGRAM, **facts):
    """Return a yard whose program writes only errors."""
    yard = Trial()

    async def begin(*given):
        yard.err = err
        yard.end(**{"code": 126, **facts})

    yard.start = begin
    return yard


@pytest.mark.parametrize(
    "yard",
    [
        failing, Refusing,
        lambda: failing(b"cannot start container: image not known", code=125),
        lambda: failing(b"", reason=ExitReason.EXEC_FAILED, code=None),
        lambda: failing(b"", reason=ExitReason.SPAWN_FAILED, code=None),
    ],
)  # fmt: skip
async def test_what_nobody_began_to_read_is_unread_and_told_to_the_next_run_once(desk, yard):
    await answering(desk)
    await tell(desk, "cancel the flight")
    assert await desk.state(await ended(desk, yard())) is RunState.FAILED
    assert await states(desk) == [("cancel the flight", MessageState.UNREAD)]
    await tell(desk, "two")
    works = Trial(said(DONE), said(DONE))
    assert await desk.state(await ended(desk, works)) is RunState.SUCCEEDED
    await tell(desk, "three")
    await ended(desk, works)
    told = [started.stdin.decode() for started in works.started]
    assert [text.count("cancel the flight") for text in told] == [1, 0]
    assert [state for _, state in await states(desk)] == [MessageState.ASSIGNED] * 3


@pytest.mark.parametrize(
    "yard",
    [
        lambda: failing(b"sh: 1: think: not found\n", code=127),
        lambda: failing(b"", code=1),
        lambda: Trial(said(OVERLOAD, code=1), said(b"", reason=ExitReason.EXEC_FAILED, code=None)),
        lambda: failing(b"", reason=ExitReason.TOO_MANY_PROCESSES, code=None),
    ],
)
async def test_a_program_that_began_has_read_what_it_was_given(desk, yard):
    await answering(desk)
    await tell(desk, "cancel the flight")
    assert await desk.state(await ended(desk, yard())) is RunState.FAILED
    assert await states(desk) == [("cancel the flight", MessageState.ASSIGNED)]


async def test_what_was_given_to_a_worker_that_died_before_it_began_is_unread(desk):
    task = await answering(desk)
    policy = replace(task.policy, on_lost=OnLost.FAIL)
    await put_task(
        desk.store, LOCAL, "talk", kind=task.kind, route="agent", thread=HERE,
        spec=dict(task.spec), policy=policy, replace=True,
    )  # fmt: skip
    await tell(desk, "cancel the flight")
    given = await claim(desk)
    await desk.store.write(assign_messages, given.lease.run_id, given.lease.epoch, "w1")
    desk.clock.advance(timedelta(days=1))
    await rescue(desk.store, Random(1), fence=True)
    assert await desk.state(given.lease.run_id) is RunState.FAILED
    assert await states(desk) == [("cancel the flight", MessageState.UNREAD)]


def test_executors_say_it_in_the_same_words():
    assert CANNOT_START.decode() == exec_program.CANNOT_START == port_forward.CANNOT_START
