"""Whether a message asks for an answer; file types; fields of mail."""

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
    """Whether a text has a thread's trigger in it as a word of its own, in whatever case.

    Without a trigger everything that is said asks.
    """
    if trigger is None:
        return True
    return re.search(rf"(?<!\w){re.escape(trigger)}(?!\w)", text, re.IGNORECASE) is not None


MAX_NAME = 120
MAX_NAME_BYTES = 240
"""A file system takes 255."""
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
"""What people send and some versions of Python do not know."""
_WORD = "[a-z0-9][a-z0-9!#$&^_.+-]{0,63}"
MIMETYPE = re.compile(f"{_WORD}/{_WORD}", re.ASCII)
MEDIA = frozenset({"image", "audio", "video"})
DOCUMENT = "document"
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""What cannot be seen, or turns round what can."""


def file_name(name: str) -> str:
    """Return the name of a file in its usual form, or refuse it."""
    usual = unicodedata.normalize("NFC", name)
    plain = not any(unicodedata.category(each) in _UNSEEN for each in usual)
    if not usual or usual in {".", ".."} or "/" in usual or "\\" in usual or not plain:
        advice = "give the name of a file alone, without folders and without what cannot be seen"
        raise Invalid("files", name, advice)
    if usual != usual.strip():
        raise Invalid("files", name, "begin and end it with something that can be seen")
    if len(usual) > MAX_NAME or len(usual.encode()) > MAX_NAME_BYTES:
        advice = f"it has at most {MAX_NAME} characters, and {MAX_NAME_BYTES} bytes"
        raise Invalid("files", name, advice)
    return usual


def check_apart(names: Sequence[str]) -> None:
    """Refuse files that somebody could take for each other by their names."""
    known: set[str] = set()
    for name in names:
        folded = unicodedata.normalize("NFKC", name).casefold()
        if folded in known:
            raise Invalid("files", name, "two files of a message have different names, in any case")
        known.add(folded)


def mimetype_of(name: str, said: str | None) -> str:
    """Return what kind of content a file has: as was said, or else as its name tells."""
    if said is not None:
        usual = said.lower()
        if MIMETYPE.fullmatch(usual) is None:
            raise Invalid("type", said, "write it as image/png, without parameters")
        return usual
    found, packed = _types().guess_type(f"x{name}", strict=False)
    if packed is not None:
        return PACKED.get(packed, UNKNOWN)
    return found or UNKNOWN


def media_type(mimetype: str) -> str:
    """Return whether something is an image, audio, video or a document."""
    kind = mimetype.partition("/")[0]
    return kind if kind in MEDIA else DOCUMENT


@cache
def _types() -> MimeTypes:
    """Return what Python knows by itself, which is the same on every machine."""
    types = MimeTypes()
    for suffix, kind in MORE_TYPES.items():
        types.add_type(kind, suffix)
    return types


MAIL = "email"
"""The channel of mail."""
PLAIN, HTML = "plain", "html"
MAX_SUBJECT = 900
MAX_REFERENCES = 50
"""How many ids a chain keeps: the first, and the newest of the rest."""
MAX_FENCES = 100
"""In how many fences of an answer a mail is looked for."""
_FENCE = re.compile(r"```[A-Za-z]*[ \t]*\n(.*?)```", re.DOTALL)
_STRAIGHT = str.maketrans("\u201c\u201d\u201e\u2018\u2019", '"""\'\'')
_ID = re.compile(r"<[^<>\s\x00-\x1f\x7f]{1,250}>")
_UNFIT = re.compile(r"[\x00-\x1f\x7f]+")


class MailDraft(NamedTuple):
    """A mail that somebody has written: without a subject it has that of what it answers."""

    body: str
    format: str = PLAIN
    subject: str = ""


class OriginalMail(NamedTuple):
    """The mail that a run was made for, as far as an answer needs it."""

    message_id: str
    references: tuple[str, ...] = ()
    subject: str = ""


def format_of(said: object) -> str:
    """Return a format that there is; whatever is unknown is plain text."""
    return HTML if isinstance(said, str) and said.strip().lower() == HTML else PLAIN


def original_in(payload: object) -> OriginalMail | None:
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
    return OriginalMail(ids[0], chain, _one_line(told.get("subject")))


def envelope(subject: str, format_: object, original: OriginalMail | None) -> MailFields:
    """Return what a mail has beside its body: an answer names what it answers, and all before."""
    said = _one_line(subject)
    if original is None:
        return MailFields(subject=said, format=format_of(format_))
    chain = list(dict.fromkeys((*original.references, original.message_id)))
    chain.remove(original.message_id)
    chain.append(original.message_id)
    if len(chain) > MAX_REFERENCES:
        chain = [chain[0], *chain[1 - MAX_REFERENCES :]]
    return MailFields(
        subject=said or reply_to(original.subject),
        format=format_of(format_),
        in_reply_to=original.message_id,
        references=tuple(chain),
    )


def reply_to(subject: str) -> str:
    """Return the subject of an answer."""
    return subject if subject.lower().startswith("re:") or not subject else f"Re: {subject}"


def mail_in(answer: str) -> MailDraft | None:
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


def as_mail(result: str) -> tuple[str, MailFields]:
    """Return a result, JSON text or a sentence, as the body and the rest of a mail.

    One that holds a mail is that mail; any other is sent as it is, in plain text.
    """
    text = mail_text(result)
    found = mail_in(text) or MailDraft(text)
    return found.body, envelope(found.subject, found.format, None)


def mail_text(result: str) -> str:
    """Return a result, JSON text or a sentence, as people read it: a text without its quotes."""
    try:
        told = json.loads(result)
    except (ValueError, RecursionError):
        return result
    return told if isinstance(told, str) else result


def _candidates(text: str) -> Iterator[str]:
    yield text
    yield from (fence[1] for fence in islice(_FENCE.finditer(text), MAX_FENCES))
    start, end = text.find("{"), text.rfind("}")
    if -1 < start < end:
        yield text[start : end + 1]


def _written(text: str) -> MailDraft | None:
    try:
        told: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or "format" not in told:
        return None
    body, subject = told.get("body"), told.get("subject")
    if not isinstance(body, str) or not body.strip():
        return None
    return MailDraft(body, format_of(told["format"]), _one_line(subject))


def _ids(text: object) -> list[str]:
    return _ID.findall(text) if isinstance(text, str) else []


def _one_line(text: object) -> str:
    """Return a subject that no header can be smuggled in with."""
    return _UNFIT.sub(" ", text).strip()[:MAX_SUBJECT] if isinstance(text, str) else ""
