"""Messages: what is found in a mail, and what files of messages may be."""

from __future__ import annotations

import json
import unicodedata
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.rules.messages import (
    MAX_REFERENCES,
    MailDraft,
    OriginalMail,
    check_distinct_names,
    file_name,
    format_of,
    mail_fields,
    mail_in,
    media_type,
    mimetype_of,
    original_in,
    reply_to,
)

# mail

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


# files


@pytest.mark.parametrize(
    "name",
    ["a.png", "Screenshot 2026-01-01 at 9.41.00\u202fAM.png", ".hidden", "-rf", "日本.txt", "a  b",
     "<b>&\"'.txt", "...", "x" * 120, "é" * 120],
)  # fmt: skip
def test_what_people_call_files_is_a_name(name):
    assert file_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "/etc/passwd", "..\\x", "a\0b", "a\nb", "a\x1b[2Jb", "a\x7f", "a\u202eb",
     "a\u2066b", "a\u200bb", " ", " a", "a ", "\u00a0", "a\ud800", "a\u2028b", "x" * 121,
     "日" * 100, "a\ue000", "a\uffff"],
)  # fmt: skip
def test_what_no_name_is_is_refused(name):
    with pytest.raises(Invalid):
        file_name(name)


def test_a_name_has_one_form():
    assert file_name(unicodedata.normalize("NFD", "é.txt")) == "é.txt"


@given(st.text(max_size=200))
def test_a_name_stays_in_its_folder_and_fits_there(name):
    try:
        usual = file_name(name)
    except Invalid:
        return
    assert PurePosixPath("/box", usual).parent == PurePosixPath("/box")
    assert len(usual.encode()) <= 255
    assert "\n" not in usual


def test_two_files_have_names_that_nobody_mistakes():
    check_distinct_names(["a.png", "b.png", "ss"])
    for names in (["a.png", "A.PNG"], ["straße", "STRASSE"], ["ﬁ", "fi"]):
        with pytest.raises(Invalid, match="distinct names"):
            check_distinct_names(names)


@pytest.mark.parametrize(
    ("name", "said", "found"),
    [("a.PNG", None, "image/png"), ("a.webp", None, "image/webp"), ("a", None, None),
     ("a.tar.gz", None, "application/gzip"), ("a.png", "text/Plain", "text/plain"),
     ("notes.md", None, "text/markdown"), ("data:text/html,x", None, None), ("a.exe9", None, None),
     ("song.ogg", None, "audio/ogg")],
)  # fmt: skip
def test_what_a_file_is_was_said_or_is_told_by_its_name(name, said, found):
    assert mimetype_of(name, said) == (found or "application/octet-stream")


@pytest.mark.parametrize("said", ["", "png", "image/", "/png", "a/b/c", "a b/c", "text/plain; x=y",
                                  "text/<b>", "x" * 70 + "/a", 'a/"b"', "ä/b"])  # fmt: skip
def test_what_is_no_type_is_refused(said):
    with pytest.raises(Invalid, match="image/png"):
        mimetype_of("a.png", said)


def test_a_medium_is_one_of_four():
    kinds = [media_type(f"{kind}/x") for kind in ("image", "audio", "video", "text", "application")]
    assert kinds == ["image", "audio", "video", "document", "document"]
