"""What programs say reaches the store without secrets; what people write stays as it is."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from rota.app.redaction import cleaned, with_redaction
from rota.model.attempts import KeptAttempt, NewEvent, OutputChunk, OutputStream, ProgressNotice
from rota.model.audit import NewAuditEntry
from rota.model.events import EventName
from rota.model.runs import RunState
from rota.model.settlement import (
    PLAIN_SUCCESS,
    NewDelivery,
    NewQuestion,
    Settlement,
    SettlementExtras,
)
from rota.rules.redaction import Redactor
from rota.store.attempts import record_launch, record_output
from rota.store.audit import AttemptOperation, AuditedOperation
from rota.store.settlement import settle
from rota.store.tasks import put_state

REAL = "sk-ant-the-real-one"
MARK = "[secret anthropic]"
KNOWS = Redactor({"anthropic": REAL})


class Store:
    """A store that notes what it is told."""

    def __init__(self):
        self.told = []
        self.operations = []
        self.database = self.now = self.subscribe = self.read = None

    async def write(self, operation, *args):
        self.operations.append(operation)
        self.told.append(args)


def settlement(extras):
    return Settlement(1, 1, 1, RunState.RUNNING, RunState.FAILED, "failed", extras)


def test_output_results_errors_questions_and_messages_are_looked_through():
    store = Store()
    kept = with_redaction(store, KNOWS)
    happened = NewEvent(EventName.OUTPUT, {"stream": "out", "at": 0, "text": f"a {REAL}"})
    heard = [OutputChunk(OutputStream.OUT, 0, 9, (happened,))]
    extras = SettlementExtras(
        result=f'"{REAL}"',
        error=f"no: {REAL}",
        question=NewQuestion(
            kind="ask", question=REAL, context=REAL, options=(REAL, "no"), expires_at=1
        ),
        deliveries=(NewDelivery(space_id=1, channel="log", target="x", body=REAL, dedupe_key="k"),),
    )
    asyncio.run(kept.write(record_output, 1, 1, "w", heard, None))
    asyncio.run(kept.write(settle, [settlement(extras), settlement(PLAIN_SUCCESS)]))
    assert REAL not in str(store.told)
    assert str(store.told).count(MARK) == 7
    (_, _, _, ((stream, start, end, *_),), _), (moved,) = store.told
    assert (stream, start, end) == (OutputStream.OUT, 0, 9)
    assert moved[1].extras is PLAIN_SUCCESS


def test_what_people_are_told_on_the_way_is_looked_through():
    store = Store()
    told = NewDelivery(space_id=1, channel="log", target="x", body=f"a {REAL}", dedupe_key="k")
    heard = [OutputChunk(OutputStream.OUT, 0, 9, (), None, (ProgressNotice(told, 5, 8),))]
    asyncio.run(with_redaction(store, KNOWS).write(record_output, 1, 1, "w", heard, None))
    ((_, _, _, (part,), _),) = store.told
    assert part.for_people == (ProgressNotice(replace(told, body=f"a {MARK}"), 5, 8),)


def test_what_a_gate_hands_on_to_the_work_is_looked_through():
    store = Store()
    kept = KeptAttempt(
        run_id=1, epoch=1, home="h", nonce="n", boot="b", executor="process",
        gate=f'{{"wake": true, "input": "{REAL}"}}', said=f"Go. {REAL}",
    )  # fmt: skip
    asyncio.run(with_redaction(store, KNOWS).write(record_launch, kept, "w"))
    assert REAL not in str(store.told)
    assert str(store.told).count(MARK) == 2


def test_an_attempts_words_are_looked_through_and_a_persons_are_not():
    store = Store()
    kept = with_redaction(store, KNOWS)
    for caller, text in (("attempt:1.1", f'"{MARK}"'), ("key:3", f'"{REAL}"')):
        entry = NewAuditEntry(caller=caller, space="main", command="put_state")
        asyncio.run(kept.write(AuditedOperation(entry, put_state), 1, "note", f'"{REAL}"', caller))
        assert store.told[-1] == (1, "note", text, caller)
        later = AttemptOperation((1, 1), put_state)
        asyncio.run(kept.write(later, 1, "note", f'"{REAL}"', "attempt:1.1"))
        assert store.told[-1] == (1, "note", f'"{MARK}"', "attempt:1.1")


def test_without_secrets_a_store_is_told_the_very_same_things():
    store = Store()
    kept = with_redaction(store, Redactor())
    heard = [OutputChunk(OutputStream.OUT, 0, 9, ())]
    asyncio.run(kept.write(record_output, 1, 1, "w", heard, None))
    assert store.told[0][3] is heard


def test_what_holds_no_secret_is_itself():
    extras = SettlementExtras(result='"fine"')
    assert cleaned(extras, KNOWS) is extras
