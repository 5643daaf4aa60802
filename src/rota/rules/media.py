"""Media: what a file that people send may be called, and what kind of thing it is."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from mimetypes import MimeTypes

from rota.errors import Invalid

LONGEST_NAME = 120
LONGEST_NAME_BYTES = 240
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
    if len(usual) > LONGEST_NAME or len(usual.encode()) > LONGEST_NAME_BYTES:
        advice = f"it has at most {LONGEST_NAME} characters, and {LONGEST_NAME_BYTES} bytes"
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
