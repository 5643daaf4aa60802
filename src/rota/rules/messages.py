"""Messages: which ones ask for an answer, names and types of files, fields of mail."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from mimetypes import MimeTypes
from typing import Any, NamedTuple

from rota.errors import Invalid
from rota.model.notifications import MailFields


def asks_for_answer(trigger: str | None, text: str) -> bool:
    """Whether a text contains a thread's trigger as a word, in any case; True without a trigger."""
    if trigger is None:
        return True
    return re.search(rf"(?<!\w){re.escape(trigger)}(?!\w)", text, re.IGNORECASE) is not None


MAX_NAME = 120
MAX_NAME_BYTES = 240
"""File systems allow 255."""
UNKNOWN = "application/octet-stream"
PACKED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}
_OFFICE = "application/vnd.openxmlformats-officedocument."
MORE_TYPES = {
    ".7z": "application/x-7z-compressed",
    ".avif": "image/avif",
    ".docx": f"{_OFFICE}wordprocessingml.document",
    ".flac": "audio/flac",
    ".heic": "image/heic",
    ".ics": "text/calendar",
    ".log": "text/plain",
    ".m4a": "audio/mp4",
    ".md": "text/markdown",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".pptx": f"{_OFFICE}presentationml.presentation",
    ".toml": "application/toml",
    ".webm": "video/webm",
    ".webp": "image/webp",
    ".xlsx": f"{_OFFICE}spreadsheetml.sheet",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
"""Types that some versions of Python do not know."""
_WORD = "[a-z0-9][a-z0-9!#$&^_.+-]{0,63}"
MIMETYPE = re.compile(f"{_WORD}/{_WORD}", re.ASCII)
MEDIA = frozenset({"image", "audio", "video"})
DOCUMENT = "document"
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that are invisible or change the direction of text."""


def file_name(name: str) -> str:
    """Return a file name in normal form; raise Invalid if it is not a plain name."""
    normal = unicodedata.normalize("NFC", name)
    plain = not any(unicodedata.category(each) in _HIDDEN_CATEGORIES for each in normal)
    if not normal or normal in {".", ".."} or "/" in normal or "\\" in normal or not plain:
        advice = "give a file name without folders and without invisible characters"
        raise Invalid("files", name, advice)
    if normal != normal.strip():
        raise Invalid("files", name, "remove the white space at its start and end")
    if len(normal) > MAX_NAME or len(normal.encode()) > MAX_NAME_BYTES:
        advice = f"use at most {MAX_NAME} characters and {MAX_NAME_BYTES} bytes"
        raise Invalid("files", name, advice)
    return normal


def check_distinct_names(names: Sequence[str]) -> None:
    """Raise Invalid for file names that are equal but for case or compatibility characters."""
    known: set[str] = set()
    for name in names:
        folded = unicodedata.normalize("NFKC", name).casefold()
        if folded in known:
            raise Invalid("files", name, "the files of a message need distinct names")
        known.add(folded)


def mimetype_of(name: str, declared: str | None) -> str:
    """Return the MIME type of a file: as declared, or by its name."""
    if declared is not None:
        lowered = declared.lower()
        if MIMETYPE.fullmatch(lowered) is None:
            raise Invalid("type", declared, "write it as image/png, without parameters")
        return lowered
    found, packed = _types().guess_type(f"x{name}", strict=False)
    if packed is not None:
        return PACKED.get(packed, UNKNOWN)
    return found or UNKNOWN


def media_type(mimetype: str) -> str:
    """Return `image`, `audio`, `video` or `document` for a MIME type."""
    kind = mimetype.partition("/")[0]
    return kind if kind in MEDIA else DOCUMENT


@cache
def _types() -> MimeTypes:
    """Return Python's built-in types, which are the same on every machine, and MORE_TYPES."""
    types = MimeTypes()
    for suffix, kind in MORE_TYPES.items():
        types.add_type(kind, suffix)
    return types


MAIL = "email"
"""The channel of mail."""
PLAIN, HTML = "plain", "html"
MAX_SUBJECT = 900
MAX_REFERENCES = 50
"""Message ids in a reply chain: the first, and the newest of the others."""
MAX_FENCES = 100
"""Code blocks of an answer that are searched for a mail."""
_FENCE = re.compile(r"```[A-Za-z]*[ \t]*\n(.*?)```", re.DOTALL)
_STRAIGHT = str.maketrans("\u201c\u201d\u201e\u2018\u2019", '"""\'\'')
_ID = re.compile(r"<[^<>\s\x00-\x1f\x7f]{1,250}>")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]+")


class MailDraft(NamedTuple):
    """A mail as written; without a subject it takes the one of the mail it answers."""

    body: str
    format: str = PLAIN
    subject: str = ""


class OriginalMail(NamedTuple):
    """The mail that a run answers, as far as the answer needs it."""

    message_id: str
    references: tuple[str, ...] = ()
    subject: str = ""


def format_of(value: object) -> str:
    """Return a valid format; unknown ones become plain text."""
    return HTML if isinstance(value, str) and value.strip().lower() == HTML else PLAIN


def original_in(payload: object) -> OriginalMail | None:
    """Return the mail in the payload of a run, in its field `mail`, if any."""
    if not isinstance(payload, Mapping):
        return None
    one_off = payload.get("payload")  # in the payload of a one-off task
    mail = payload.get("mail") or (one_off.get("mail") if isinstance(one_off, Mapping) else None)
    if not isinstance(mail, Mapping):
        return None
    ids = _ids(mail.get("message_id"))
    if not ids:
        return None
    references = mail.get("references")
    parts = references if isinstance(references, list) else [references]
    chain = tuple(one for part in parts for one in _ids(part))
    return OriginalMail(ids[0], chain, _one_line(mail.get("subject")))


def mail_fields(subject: str, format_: object, original: OriginalMail | None) -> MailFields:
    """Return the fields of a mail; an answer refers to the whole chain it answers."""
    own_subject = _one_line(subject)
    if original is None:
        return MailFields(subject=own_subject, format=format_of(format_))
    chain = list(dict.fromkeys((*original.references, original.message_id)))
    chain.remove(original.message_id)
    chain.append(original.message_id)
    if len(chain) > MAX_REFERENCES:
        chain = [chain[0], *chain[1 - MAX_REFERENCES :]]
    return MailFields(
        subject=own_subject or reply_to(original.subject),
        format=format_of(format_),
        in_reply_to=original.message_id,
        references=tuple(chain),
    )


def reply_to(subject: str) -> str:
    """Return the subject of a reply."""
    return subject if subject.lower().startswith("re:") or not subject else f"Re: {subject}"


def mail_in(answer: str) -> MailDraft | None:
    """Return the mail in an answer: a JSON object with `body` and `format`, or None.

    The object may be the whole answer, in a code block, between other text, or written with
    typographic quotes.
    """
    for text in (answer, answer.translate(_STRAIGHT)):
        for candidate in _candidates(text):
            found = _draft_in(candidate)
            if found is not None:
                return found
    return None


def as_mail(result: str) -> tuple[str, MailFields]:
    """Return a result, JSON text or plain text, as body and fields of a mail.

    A result that contains a mail becomes that mail; any other is sent as plain text.
    """
    text = mail_text(result)
    found = mail_in(text) or MailDraft(text)
    return found.body, mail_fields(found.subject, found.format, None)


def mail_text(result: str) -> str:
    """Return a result, JSON text or plain text, for people: a JSON string without its quotes."""
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return result
    return value if isinstance(value, str) else result


def _candidates(text: str) -> Iterator[str]:
    yield text
    yield from (fence[1] for fence in islice(_FENCE.finditer(text), MAX_FENCES))
    start, end = text.find("{"), text.rfind("}")
    if -1 < start < end:
        yield text[start : end + 1]


def _draft_in(text: str) -> MailDraft | None:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or "format" not in value:
        return None
    body, subject = value.get("body"), value.get("subject")
    if not isinstance(body, str) or not body.strip():
        return None
    return MailDraft(body, format_of(value["format"]), _one_line(subject))


def _ids(text: object) -> list[str]:
    return _ID.findall(text) if isinstance(text, str) else []


def _one_line(text: object) -> str:
    """Return a text without line breaks, so that it cannot add headers to a mail."""
    return _CONTROLS.sub(" ", text).strip()[:MAX_SUBJECT] if isinstance(text, str) else ""
