"""Threads, messages and their readers.

A message that asks for one has a reader: a run that is queued when it is said, in the lane of its
thread, so that it waits behind whatever goes on there. One that asks for nobody joins the reader
that is queued, or waits for the next that does. A run that is going on may take messages before
that; what it does not take is read by the reader. Every change of a thread's messages locks the
thread, and a reader asks for them only after it was claimed: so none comes between.
"""

from __future__ import annotations

import json

from rota.errors import Conflict, NotFound
from rota.model.ids import Epoch, MessageId, RunId, TaskId, ThreadId
from rota.model.instants import from_micros, maybe_instant
from rota.model.runs import OpenRun, RunBatch, RunState
from rota.model.settlement import Settlement, SettlementExtras
from rota.model.threads import (
    MAX_PASSING,
    MAX_PASSING_BYTES,
    MAX_PASSING_CHARACTERS,
    MAX_PENDING,
    MAX_PENDING_BYTES,
    MAX_PENDING_CHARACTERS,
    MessageFile,
    MessageState,
    NewMessage,
    NewThread,
    Thread,
    ThreadFilter,
    ThreadMessage,
)
from rota.store.quotas import enqueue_within
from rota.store.settlement import NEWEST, settle
from rota.store.tasks import join_thread
from rota.store.transactions import MESSAGES, Row, Transaction, one
from rota.store.workers import as_open_run

READ_ALREADY = SettlementExtras(
    error_code="cancelled", error="what it was to read was read by a run that was going on"
)


def _as_message(row: Row) -> ThreadMessage:
    return ThreadMessage(
        id=MessageId(row[0]),
        thread=row[1],
        sender=row[2],
        body=row[3],
        at=from_micros(row[4]),
        state=MessageState(row[5]),
        reader_run_id=None if row[6] is None else RunId(row[6]),
        run_id=None if row[7] is None else RunId(row[7]),
        epoch=None if row[8] is None else Epoch(row[8]),
        read_at=maybe_instant(row[9]),
        files=tuple(MessageFile(*each) for each in json.loads(row[10] or "[]")),
    )


async def add_message(
    tx: Transaction, message: NewMessage, reader: RunBatch | None
) -> ThreadMessage:
    """Write a message down together with its files and with who reads it."""
    now = tx.now()
    await join_thread(tx, message.space_id, message.thread)
    await tx.rows("lock_thread", key=message.thread)
    carried = sum(file.metadata.size for file in message.files)
    full = await _has_no_room(tx, message, carried, asks=reader is not None)
    readers = await tx.rows("queued_reader_runs", thread=message.thread, most=NEWEST)
    state = MessageState.SKIPPED if full else MessageState.PENDING
    run_id = readers[-1][0] if readers and not full else None
    if run_id is None and reader is not None:
        run_id = (await enqueue_within(tx, [reader], now))[0][0].run_id
        turned = {"most": MAX_PENDING - 1, "bytes": MAX_PENDING_BYTES - carried}
        await tx.run("assign_reader_run", thread=message.thread, reader_run_id=run_id, **turned)
    row = await one(
        tx,
        "insert_message",
        space_id=message.space_id,
        thread=message.thread,
        sender=message.sender,
        body=message.body,
        state=state.value,
        reader_run_id=run_id,
        follow_up=int(message.follow_up),
        now=now,
    )
    if row is None:
        raise NotFound("thread", message.thread)
    await _keep_files(tx, row[0], message, read=not full)
    if run_id is None:
        await _pass_over(tx, message.thread)
    else:
        tx.wake(MESSAGES)
    files = json.dumps([file.metadata for file in message.files])
    stands = (row[0], message.thread, message.sender, message.body, now, state)
    return _as_message((*stands, run_id, None, None, None, files))


async def _has_no_room(tx: Transaction, message: NewMessage, carried: int, *, asks: bool) -> bool:
    """Whether too much waits in a thread for one more; who asks for a reader is refused then."""
    waits = await tx.rows("count_pending", thread=message.thread)
    count, characters, size = waits[0]
    many = count >= MAX_PENDING or characters + len(message.body) > MAX_PENDING_CHARACTERS
    large = size + carried > MAX_PENDING_BYTES
    if asks and many:
        sentence = f"{count} messages wait in {message.thread} to be read: say more afterwards"
        raise Conflict(sentence)
    if asks and large:
        sentence = (
            f"files of {size} bytes wait in {message.thread} to be read, and more than "
            f"{MAX_PENDING_BYTES} may not: send more afterwards"
        )
        raise Conflict(sentence)
    return bool(many or large)


async def _keep_files(tx: Transaction, message_id: int, message: NewMessage, *, read: bool) -> None:
    """Write the files of a message down; of one that nobody will read, only what they are."""
    for position, (facts, content) in enumerate(message.files):
        await tx.run(
            "insert_message_file",
            message_id=message_id,
            position=position,
            name=facts.name,
            mimetype=facts.mimetype,
            size=facts.size,
            digest=facts.sha256,
            content=content if read else None,
        )


async def _pass_over(tx: Transaction, thread: str) -> None:
    """Pass over the oldest that ask for nobody, where there are many."""
    room = {
        "most": MAX_PASSING,
        "characters": MAX_PASSING_CHARACTERS,
        "bytes": MAX_PASSING_BYTES,
    }
    passed = await tx.rows("skip_messages", thread=thread, **room)
    if passed:
        await tx.run("drop_file_contents", ids=[row[0] for row in passed])


async def requeue_reader(tx: Transaction, run_id: int, reader: RunBatch) -> RunId | None:
    """Queue another run for what an earlier one was to read."""
    row = await one(tx, "thread_of_reader_run", run_id=run_id)
    if row is None:
        return None
    thread = row[0]
    await tx.rows("lock_thread", key=thread)
    template = reader.template._replace(thread=thread, lane=thread)
    reader = reader._replace(template=template)
    queued = (await enqueue_within(tx, [reader], tx.now()))[0][0]
    await tx.run("reassign_messages", run_id=run_id, reader_run_id=queued.run_id)
    tx.wake(MESSAGES)
    return queued.run_id


async def assign_messages(
    tx: Transaction, run_id: int, epoch: int, worker: str
) -> list[ThreadMessage]:
    """Bind what a run was queued to read to it."""
    now = tx.now()
    thread = await _thread_of(tx, run_id, epoch, worker)
    if thread is None:
        return []
    await tx.run("assign_messages", run_id=run_id, epoch=epoch, now=now)
    return [_as_message(row) for row in await tx.rows("messages_of_run", run_id=run_id)]


async def acknowledge_messages(tx: Transaction, run_id: int, epoch: int, upto: int) -> int | None:
    """Note what a run has read while it was going on, and end who was to read it."""
    now = tx.now()
    thread = await _thread_of(tx, run_id, epoch, None)
    found = None if thread is None else await one(tx, "find_message", id=upto, thread=thread)
    if found is None:
        return None
    readers = await tx.rows(
        "acknowledge_messages", thread=thread, upto=upto, run_id=run_id, epoch=epoch, now=now
    )
    idle = await tx.rows("idle_reader_runs", ids=sorted({row[0] for row in readers}))
    was, state = RunState.QUEUED, RunState.CANCELLED
    ends = [
        Settlement(reader, number, task_id, was, state, state.value, READ_ALREADY)
        for reader, number, task_id in idle
    ]
    if ends:
        await settle(tx, ends)
    return len(readers)


async def _thread_of(tx: Transaction, run_id: int, epoch: int, worker: str | None) -> str | None:
    """Return the thread that a run which goes on takes part in, locked."""
    owner = {"run_id": run_id, "epoch": epoch, "worker": worker}
    row = await one(tx, "thread_of_attempt", **owner)
    if row is None or row[1] is None:
        return None
    await tx.rows("lock_thread", key=row[1])
    return str(row[1])


async def read_message_file(tx: Transaction, message_id: int, position: int) -> bytes | None:
    """Return what is in a file of a message."""
    row = await one(tx, "message_content", id=message_id, position=position)
    return None if row is None or row[0] is None else bytes(row[0])


async def find_thread_space(tx: Transaction, key: str) -> int | None:
    """Return the space that a thread belongs to."""
    row = await one(tx, "find_thread", key=key)
    return None if row is None else int(row[0])


async def pending_messages(
    tx: Transaction, thread: str, box: str, most: int
) -> list[ThreadMessage]:
    """Return what nobody has read in a thread and is not in a box."""
    rows = await tx.rows("pending_messages", thread=thread, mailbox=box, most=most)
    return [_as_message(row) for row in rows]


async def record_mailbox_number(tx: Transaction, message_id: int, box: str, number: int) -> None:
    """Note that a message lies in a box."""
    await tx.run("offer_message", id=message_id, mailbox=box, mailbox_number=number)


async def find_mailbox_message(tx: Transaction, box: str, number: int) -> MessageId | None:
    """Return the message that a box calls by a number."""
    row = await one(tx, "offered_message", mailbox=box, mailbox_number=number)
    return None if row is None else MessageId(row[0])


async def list_messages(
    tx: Transaction, thread: str, space: str | None, before: int, most: int
) -> list[ThreadMessage]:
    """Return what was said in a thread."""
    found = await tx.rows("list_messages", thread=thread, space=space, before=before, most=most)
    return [_as_message(row) for row in found]


LAST = (1 << 63) - 1


def _as_thread(row: Row) -> Thread:
    return Thread(
        id=ThreadId(row[0]),
        space=row[1],
        key=row[2],
        title=row[3],
        task_id=None if row[4] is None else TaskId(row[4]),
        task=row[5],
        trigger=row[6],
        metadata=json.loads(row[7]),
        created_at=from_micros(row[8]),
        last_message_at=maybe_instant(row[9]),
        pending=row[10],
    )


async def put_thread(tx: Transaction, thread: NewThread) -> Thread:
    """Register a thread, or change what is said of it."""
    await join_thread(tx, thread.space_id, thread.key)
    changes = dict(thread.changes)
    if "metadata" in changes:
        changes["metadata"] = json.dumps(changes["metadata"], sort_keys=True)
    await tx.run("change_thread", key=thread.key, changes=json.dumps(changes))
    found = await get_thread(tx, thread.key)
    if found is None:
        raise NotFound("thread", thread.key)
    return found


async def get_thread(tx: Transaction, key: str) -> Thread | None:
    """Return a thread."""
    row = await one(tx, "get_thread", key=key)
    return None if row is None else _as_thread(row)


async def list_threads(tx: Transaction, wanted: ThreadFilter) -> list[Thread]:
    """Return threads, newest first."""
    before = LAST if wanted.before is None else wanted.before
    rows = await tx.rows("list_threads", space_id=wanted.space_id, before=before, most=wanted.limit)
    return [_as_thread(row) for row in rows]


async def list_open_runs_in_thread(
    tx: Transaction, space_id: int, thread: str, most: int
) -> list[OpenRun]:
    """Return the runs of a conversation that have not ended."""
    rows = await tx.rows("open_runs_in", space_id=space_id, thread=thread, most=most)
    return [as_open_run(row) for row in rows]
