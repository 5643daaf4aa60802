"""What a person is shown of an action, and which decisions are about it."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import Conflict, Invalid
from rota.model.ids import Epoch, QuestionId, RunId
from rota.model.instants import to_micros
from rota.model.runs import Question
from rota.rules.approvals import action_digest, action_text, check_decision, decision

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def shown(action):
    return action_text(action, run=7, attempt=1, task="deploy", space="main")


def approval(text, **changed):
    told = {
        "id": QuestionId(1), "run_id": RunId(7), "epoch": Epoch(1), "kind": "approval",
        "question": "Deploy?", "context": "", "options": ("approve", "deny"), "asked_at": NOW,
        "expires_at": NOW + timedelta(hours=1), "answered_at": None, "answer": None,
        "answered_by": None, "action": text, "digest": action_digest(text),
    }  # fmt: skip
    return Question(**(told | changed))


@given(JSON)
def test_what_is_shown_is_printable_and_says_everything(action):
    text = shown(action)
    assert text.isprintable()
    assert json.loads(text)["action"] == json.loads(json.dumps(action))
    assert action_digest(text) == hashlib.sha256(text.encode()).hexdigest()


@given(JSON, JSON)
def test_two_actions_look_alike_only_if_they_are_the_same(one, other):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (shown(one) == shown(other)) == same


def test_the_order_of_keys_does_not_matter_and_who_asks_does():
    assert shown({"a": 1, "b": 2}) == shown({"b": 2, "a": 1})
    text = shown({"a": 1})
    for changed in ({"run": 8}, {"attempt": 2}, {"task": "other"}, {"space": "ann"}):
        who = {"run": 7, "attempt": 1, "task": "deploy", "space": "main"} | changed
        assert action_text({"a": 1}, **who) != text


@pytest.mark.parametrize("action", [float("nan"), {1, 2}, object()])
def test_what_is_no_json_cannot_be_approved(action):
    with pytest.raises(Invalid, match="^action"):
        shown(action)


def test_every_single_changed_byte_makes_a_decision_void():
    text = shown({"argv": ["deploy"]})
    question = approval(text)
    check_decision(question, "approve", question.digest, to_micros(NOW))
    for place in range(len(text)):
        changed = text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]
        with pytest.raises(Conflict, match="look at the action again"):
            check_decision(question, "approve", action_digest(changed), to_micros(NOW))
        with pytest.raises(Conflict, match="look at the action again"):  # the record was changed
            damaged = approval(changed, digest=question.digest)
            check_decision(damaged, "approve", question.digest, to_micros(NOW))


def test_a_decision_counts_until_its_expiry_and_not_then():
    question = approval(shown({}))
    end = to_micros(question.expires_at)
    check_decision(question, "deny", question.digest, end - 1)
    with pytest.raises(Conflict, match="has expired"):
        check_decision(question, "deny", question.digest, end)


def test_a_plain_question_takes_no_hash_and_a_decision_names_its_own():
    plain = approval("", kind="ask", action=None, digest=None, options=(), answer="red")
    check_decision(plain, "red", None, to_micros(NOW))
    with pytest.raises(Invalid, match="has no action"):
        check_decision(plain, "red", "0" * 64, to_micros(NOW))
    decided = approval("x", answer="deny")
    assert (decision(plain), decision(decided)) == ("red", f"deny sha256:{action_digest('x')}")
