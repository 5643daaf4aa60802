"""Mail: what an attempt wants written, how it answers what came, and where an answer hides one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from rota.model.deliveries import Mail

MAIL = "email"
"""The channel of mail."""
PLAIN, HTML = "plain", "html"
LONGEST_SUBJECT = 900
MOST_REFERENCES = 50
"""How many ids a chain keeps: the first, and the newest of the rest."""
MOST_FENCES = 100
"""In how many fences of an answer a mail is looked for."""
_FENCE = re.compile(r"```[A-Za-z]*[ \t]*\n(.*?)```", re.DOTALL)
_STRAIGHT = str.maketrans("\u201c\u201d\u201e\u2018\u2019", '"""\'\'')
_ID = re.compile(r"<[^<>\s\x00-\x1f\x7f]{1,250}>")
_UNFIT = re.compile(r"[\x00-\x1f\x7f]+")


class Written(NamedTuple):
    """A mail that somebody has written: without a subject it has that of what it answers."""

    body: str
    format: str = PLAIN
    subject: str = ""


class Original(NamedTuple):
    """The mail that a run was made for, as far as an answer needs it."""

    message_id: str
    references: tuple[str, ...] = ()
    subject: str = ""


def format_of(said: object) -> str:
    """Return a format that there is; whatever is unknown is plain text."""
    return HTML if isinstance(said, str) and said.strip().lower() == HTML else PLAIN


def original_in(payload: object) -> Original | None:
    """Return the mail that a run was given as `mail` in its payload, if it was given one."""
    if not isinstance(payload, Mapping):
        return None
    brought = payload.get("payload")  # of a run that was asked for once
    told = payload.get("mail") or (brought.get("mail") if isinstance(brought, Mapping) else None)
    if not isinstance(told, Mapping):
        return None
    ids = _ids(told.get("message_id"))
    if not ids:
        return None
    said = told.get("references")
    parts = said if isinstance(said, list) else [said]
    chain = tuple(one for part in parts for one in _ids(part))
    return Original(ids[0], chain, _one_line(told.get("subject")))


def envelope(subject: str, format_: object, original: Original | None) -> Mail:
    """Return what a mail has beside its body: an answer names what it answers, and all before."""
    said = _one_line(subject)
    if original is None:
        return Mail(subject=said, format=format_of(format_))
    chain = list(dict.fromkeys((*original.references, original.message_id)))
    chain.remove(original.message_id)
    chain.append(original.message_id)
    if len(chain) > MOST_REFERENCES:
        chain = [chain[0], *chain[1 - MOST_REFERENCES :]]
    return Mail(
        subject=said or answering(original.subject),
        format=format_of(format_),
        in_reply_to=original.message_id,
        references=tuple(chain),
    )


def answering(subject: str) -> str:
    """Return the subject of an answer."""
    return subject if subject.lower().startswith("re:") or not subject else f"Re: {subject}"


def mail_in(answer: str) -> Written | None:
    """Return the mail that an answer holds as JSON with `body` and `format`, or None.

    It may be all of the answer, stand in a fence, stand between other words, or have got curly
    quotes on its way. Prose holds none.
    """
    for text in (answer, answer.translate(_STRAIGHT)):
        for candidate in _candidates(text):
            found = _written(candidate)
            if found is not None:
                return found
    return None


def as_mail(result: str) -> tuple[str, Mail]:
    """Return a result, JSON text or a sentence, as the body and the rest of a mail.

    One that holds a mail is that mail; any other is sent as it is, in plain text.
    """
    text = words_of(result)
    found = mail_in(text) or Written(text)
    return found.body, envelope(found.subject, found.format, None)


def words_of(result: str) -> str:
    """Return a result, JSON text or a sentence, as people read it: a text without its quotes."""
    try:
        told = json.loads(result)
    except (ValueError, RecursionError):
        return result
    return told if isinstance(told, str) else result


def _candidates(text: str) -> Iterator[str]:
    yield text
    yield from (fence[1] for fence in islice(_FENCE.finditer(text), MOST_FENCES))
    start, end = text.find("{"), text.rfind("}")
    if -1 < start < end:
        yield text[start : end + 1]


def _written(text: str) -> Written | None:
    try:
        told: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or "format" not in told:
        return None
    body, subject = told.get("body"), told.get("subject")
    if not isinstance(body, str) or not body.strip():
        return None
    return Written(body, format_of(told["format"]), _one_line(subject))


def _ids(text: object) -> list[str]:
    return _ID.findall(text) if isinstance(text, str) else []


def _one_line(text: object) -> str:
    """Return a subject that no header can be smuggled in with."""
    return _UNFIT.sub(" ", text).strip()[:LONGEST_SUBJECT] if isinstance(text, str) else ""
