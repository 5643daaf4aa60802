"""Mail: what is found in an answer, and what an answer names."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.rules.messages import (
    MAX_REFERENCES,
    MailDraft,
    OriginalMail,
    format_of,
    mail_fields,
    mail_in,
    original_in,
    reply_to,
)

WANTED = MailDraft("Dear Ann,\nit is done.", "html", "Done")
TEXT = json.dumps({"subject": "Done", "body": "Dear Ann,\nit is done.", "format": "html"})
CURLY = TEXT.replace('"', "\u201c", 1).replace('"', "\u201d")


@pytest.mark.parametrize(
    "answer",
    [
        TEXT,
        f"Here it is:\n```json\n{TEXT}\n```\nGood luck.",
        f"```\n{TEXT}\n```",
        f"I would send {TEXT} to her.",
        CURLY,
        f"Here: {CURLY}",
    ],
)
def test_one_mail_is_found_in_every_encoding(answer):
    assert mail_in(answer) == WANTED


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I have sent it already.",
        "Sets are written {1, 2}.",
        '{"subject": "x", "format": "plain"}',
        '{"body": "no format"}',
        '{"body": "   ", "format": "plain"}',
        '{"body": 7, "format": "plain"}',
        '{"body": "cut of',
        "[" * 100_000,
        "{" * 50_000 + "}" * 50_000,
    ],
)
def test_nothing_else_is_a_mail(answer):
    assert mail_in(answer) is None


@pytest.mark.parametrize(
    ("said", "meant"),
    [("html", "html"), (" HTML ", "html"), ("plain", "plain"), ("markdown", "plain"), (None, "plain"), (3, "plain")],
)  # fmt: skip
def test_an_unknown_format_is_plain(said, meant):
    assert format_of(said) == meant


words = st.text(st.characters(exclude_characters="\u201c\u201d\u201e\u2018\u2019"), max_size=50)


@given(words.filter(str.strip), words, words, words)
def test_what_was_written_is_found_whatever_stands_around_it(body, before, after, format_):
    around = before.replace("{", "").replace("`", ""), after.replace("}", "").replace("`", "")
    text = json.dumps({"body": body, "format": format_})
    found = mail_in(f"{around[0]}{text}{around[1]}")
    assert found == MailDraft(body, format_of(format_))


@given(st.text(max_size=300))
def test_no_answer_breaks_the_search(answer):
    mail_in(answer)


def test_an_answer_names_what_it_answers_and_all_before():
    original = OriginalMail("<c@x>", ("<a@x>", "<b@x>"), "Invoice")
    mail = mail_fields("", "html", original)
    assert (mail.in_reply_to, mail.references) == ("<c@x>", ("<a@x>", "<b@x>", "<c@x>"))
    assert (mail.subject, mail.format) == ("Re: Invoice", "html")
    assert mail_fields("Mine", "", original).subject == "Mine"


def test_a_fresh_mail_answers_nothing():
    mail = mail_fields("Hello", "plain", None)
    assert (mail.subject, mail.in_reply_to, mail.references) == ("Hello", None, ())


@pytest.mark.parametrize(
    ("subject", "answer"),
    [("Invoice", "Re: Invoice"), ("Re: Invoice", "Re: Invoice"), ("RE: x", "RE: x"), ("", "")],
)
def test_an_answer_says_re_once(subject, answer):
    assert reply_to(subject) == answer


def test_a_subject_smuggles_no_header():
    assert mail_fields("Hi\r\nBcc: eve@x", "plain", None).subject == "Hi Bcc: eve@x"
    original = original_in({"mail": {"message_id": "<a@x>", "subject": "Hi\nBcc: eve@x"}})
    assert original is not None
    assert mail_fields("", "", original).subject == "Re: Hi Bcc: eve@x"


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (None, None),
        ({"mail": "x"}, None),
        ({"mail": {"message_id": "no id"}}, None),
        ({"mail": {"message_id": "<a b@x>"}}, None),
        ({"mail": {"message_id": "<a@x>\r\nBcc: <eve@x>"}}, OriginalMail("<a@x>")),
        ({"mail": {"message_id": "<c@x>", "references": "<a@x> <b@x>", "subject": "S"}}, OriginalMail("<c@x>", ("<a@x>", "<b@x>"), "S")),
        ({"payload": {"mail": {"message_id": "<c@x>", "references": ["<a@x>", 7]}}}, OriginalMail("<c@x>", ("<a@x>",))),
    ],
)  # fmt: skip
def test_the_original_is_read_from_the_payload_with_care(payload, found):
    assert original_in(payload) == found


@given(st.lists(st.integers(0, 200), max_size=120), st.integers(0, 200))
def test_a_chain_has_each_id_once_ends_with_the_parent_and_is_bounded(numbers, parent):
    chain = tuple(f"<{number}@x>" for number in numbers)
    mail = mail_fields("", "", OriginalMail(f"<{parent}@x>", chain))
    assert mail.references[-1] == mail.in_reply_to == f"<{parent}@x>"
    assert len(set(mail.references)) == len(mail.references) <= MAX_REFERENCES
