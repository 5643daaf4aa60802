"""A run stops to ask a person, and goes on with the answer: once, whoever gives it and when."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from rota.errors import Conflict, IllegalMove, Invalid, NotFound, NotPermitted
from rota.flow.attempt.prompt import ASKED
from rota.flow.maintain import NO_ANSWER, expire
from rota.model.attempts import Cancelled, Succeeded, WaitingForAnswer
from rota.rules.approvals import decision
from rota.rules.permissions import OWNER
from rota.store.sqlite.database import SqliteDatabase
from rota.store.views import list_questions
from tests.contract.store.test_attempt_requests import AGAIN
from tests.scenario.attempt_requests.attempts import ANN, Talkers
from tests.tools.store_bench import Bench, failed

THREE_DAYS = timedelta(days=3)


async def test_asking_tells_the_attempt_to_end_its_turn_and_then_the_run_waits(small):
    agent = await small.begin()
    told = await agent("ask_user", question="Red or blue?", options=["red", "blue"])
    assert "End your turn" in told["next"]
    assert (await small.person("list_open_questions"))["questions"] == []  # its program still runs
    assert await agent.end(Succeeded(result='"I am done"'))
    (waiting,) = (await small.person("list_open_questions"))["questions"]
    assert (waiting["question"]["question"], waiting["run"]["result"]) == ("Red or blue?", None)
    assert await small.bench.claim() == []


@pytest.mark.parametrize("outcome", [failed(), Cancelled(reason="it went on too long")])
async def test_it_waits_also_when_its_program_did_not_end_well(small, outcome):
    agent = await small.begin(retry=AGAIN)
    await agent("ask_user", question="Shall I?")
    assert await agent.end(outcome)
    (waiting,) = (await small.person("list_open_questions"))["questions"]
    assert waiting["run"]["retries"] == 0


async def test_the_resumed_attempt_is_told_what_it_asked_and_was_answered(small):
    agent = await small.begin()
    await agent.asks(question="Which colour?")
    await small.person("answer_run", run=agent.run_id, answer="red")
    again = await small.next()
    assert (again.lease.cause, again.assignment.answers) == ("resume", ("red",))
    asked = [q for q in await small.store.read(list_questions, [again.run_id]) if q.kind in ASKED]
    assert [(question.question, decision(question)) for question in asked] == [
        ("Which colour?", "red")
    ]


@pytest.fixture(params=["sqlite", "postgres"])
def made(request, tmp_path, clock):
    """Makes a store on the same database, as another process would."""
    if request.param == "sqlite":
        return lambda: SqliteDatabase(str(tmp_path / "rota.db"), clock)
    address = request.getfixturevalue("postgres_address")
    from rota.store.postgres.database import PostgresDatabase

    return lambda: PostgresDatabase(address, clock, own_clock=True)


async def test_an_answer_after_a_reboot_three_days_later_from_another_door_counts_once(
    made, clock, chance
):
    """Asked by one process, answered in another by several at once, gone on with in a third."""
    store = made()
    await store.open()
    agent = await Talkers(Bench(store, clock)).begin()
    question = await agent.asks(question="Shall I?", options=["yes", "no"], expires_in="7d")
    await store.close()
    clock.advance(THREE_DAYS)
    store = made()
    await store.open()
    assert await expire(store, chance) == 0
    people = Talkers(Bench(store, clock))
    tries = [
        people.person("answer_run", run=agent.run_id, question=question["id"], answer=text)
        for text in ("yes", "no", "yes")
    ]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    assert [type(a) for a in answers].count(dict) == 1
    assert all(isinstance(a, dict | IllegalMove) for a in answers), answers
    await store.close()
    store = made()
    await store.open()
    third = Talkers(Bench(store, clock))
    again = await third.next()
    assert (again.lease.epoch, len(again.assignment.answers)) == (2, 1)
    assert await third.bench.claim() == []
    assert await again.end()
    shown = await third.person("show_run", run=agent.run_id)
    assert (shown["state"], len(shown["questions"])) == ("succeeded", 1)
    assert shown["questions"][0]["answered_by"] == OWNER
    await store.close()


async def test_a_default_is_the_answer_when_nobody_gave_one(talkers, chance):
    agent = await talkers.begin()
    await agent.asks(options=["yes", "no"], default="no", expires_in="2h")
    talkers.clock.advance(timedelta(hours=1, minutes=59))
    assert await expire(talkers.store, chance) == 0
    talkers.clock.advance(minutes=1)
    assert await expire(talkers.store, chance) == 1
    again = await talkers.next()
    assert again.assignment.answers == ("no",)
    (question,) = (await talkers.person("show_run", run=agent.run_id))["questions"]
    assert (question["answer"], question["answered_by"]) == ("no", "default")
    assert await expire(talkers.store, chance) == 0


async def test_without_a_default_the_run_expires_and_people_are_told(small, chance):
    agent = await small.begin(deliver_to="log:ann")
    await agent.asks(expires_in="2h")
    small.clock.advance(hours=2)
    assert await expire(small.store, chance) == 1
    shown = await small.person("show_run", run=agent.run_id)
    assert (shown["state"], shown["error_code"]) == ("expired", NO_ANSWER)
    assert NO_ANSWER == "waiting_for_user_timeout"
    notice, question = sorted(shown["deliveries"], key=lambda one: one["kind"], reverse=True)
    assert (question["kind"], question["state"]) == ("notification", "withdrawn")
    assert (notice["target"], "nobody answered" in notice["body"]) == ("ann", True)


async def test_an_answer_after_the_expiry_is_void_before_anybody_has_looked(small):
    agent = await small.begin()
    question = await agent.asks(expires_in="1m")
    small.clock.advance(minutes=1)
    with pytest.raises(Conflict, match=f"question {question['id']} has expired"):
        await small.person("answer_run", run=agent.run_id, answer="yes")


async def test_every_answer_stays_on_record(talkers):
    agent = await talkers.begin()
    for number in range(3):
        await agent.asks(question=f"Number {number}?")
        await talkers.person("answer_run", run=agent.run_id, answer=f"answer {number}")
        agent = await talkers.next()
    assert agent.assignment.answers == ("answer 0", "answer 1", "answer 2")
    shown = (await talkers.person("show_run", run=agent.run_id))["questions"]
    assert [(q["question"], q["answer"], q["attempt"]) for q in shown] == [
        (f"Number {n}?", f"answer {n}", n + 1) for n in range(3)
    ]


async def test_only_people_of_the_space_may_answer(small):
    agent = await small.begin()
    other = await small.begin(await small.task("other"))
    await agent.asks()
    for attempt in (other, agent):
        with pytest.raises(NotPermitted, match="only people"):
            await attempt("answer_run", run=agent.run_id, answer="yes")
    with pytest.raises(NotFound):
        await small.person("answer_run", ANN, run=agent.run_id, answer="yes")
    assert (await small.person("show_run", run=agent.run_id))["state"] == "waiting"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"expires_in": "30s"}, "expires_in"),
        ({"expires_in": "31d"}, "expires_in"),
        ({"options": ["a", "b"], "default": "c"}, "default"),
        ({"options": ["a", "a"]}, "options"),
        ({"question": "\x1b[2J\x00".replace("\x00", "")}, "question"),
        ({"action": {"rm": "all"}, "default": "approve"}, "default"),
        ({"action": {"rm": "all"}, "options": ["yes", "no"]}, "options"),
        ({"action": {"x": "y" * 20_000}}, "action"),
    ],
)
async def test_a_bad_question_is_refused_in_one_sentence(small, fields, named):
    agent = await small.begin()
    with pytest.raises(Invalid, match=f"^{named} "):
        await agent("ask_user", **{"question": "Shall I?", **fields})
    assert await agent.end()
    assert (await small.person("show_run", run=agent.run_id))["state"] == "succeeded"


async def test_what_is_shown_of_a_question_drives_no_terminal(small):
    agent = await small.begin()
    asked = await agent.asks(question="Pay\x1b[2J \u202e001\u202c?", context="\x1b]0;x\x07why")
    assert (asked["question"], asked["context"]) == ("Pay 001?", "why")


async def test_a_request_that_comes_again_is_answered_as_before(small):
    agent = await small.begin()
    first = await agent("ask_user", request="r-1", question="Shall I?")
    assert await agent("ask_user", request="r-1", question="Shall I?") == first
    with pytest.raises(Conflict, match="asked already"):
        await agent("ask_user", request="r-2", question="Or shall I?")
    assert await agent.end()
    assert len(await small.store.read(list_questions, [agent.run_id])) == 1
    assert json.loads(json.dumps(first)) == first


async def test_words_that_sound_like_a_question_park_no_run(small):
    """IST-W18: Phrases were searched for in the answer: false hits blocked runs, and a rerun began anew."""
    agent = await small.begin()
    assert await agent.end(Succeeded(result='"Please confirm. Reply yes or no."'))
    assert (await small.person("show_run", run=agent.run_id))["state"] == "succeeded"
    agent = await small.begin(agent.assignment.task)
    assert await agent.end(WaitingForAnswer(question="Shall I?", default="no"))
    (waiting,) = (await small.person("list_open_questions"))["questions"]
    asked = waiting["question"]
    assert (asked["attempt"], asked["default"]) == (1, "no")
    await small.person("answer_run", run=agent.run_id, question=asked["id"], answer="yes")
    again = await small.next()
    assert (again.lease.cause, again.assignment.answers) == ("resume", ("yes",))
