"""Names for tasks that were given none."""

from __future__ import annotations

import re
import unicodedata

from rota.doors.commands.task_requests import WholeTask
from rota.doors.kit.office import Office

LONGEST_SLUG = 40
MOST_READ = 1_000
"""How many characters are looked at: Unicode's forms of many marks take their square."""
SPELLED = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "æ": "ae", "ø": "oe"})


async def free_name(office: Office, space_id: int, asked: WholeTask) -> str:
    """Return a name that nobody has, made of what the task is about."""
    said = asked.title or asked.instructions or asked.call or " ".join(asked.command or ())
    slug = name = slug_of(said)
    count = 1
    while await office.store.find_task(space_id, name) is not None:
        count += 1
        name = f"{slug}-{count}"
    return name


def slug_of(said: str) -> str:
    """Return the name that words make."""
    plain = _plain(said[:MOST_READ].lower())
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:LONGEST_SLUG].strip("-")
    if not slug or slug.isdigit():  # a number alone is an id
        slug = f"task-{slug}".strip("-")
    return slug


def _plain(text: str) -> str:
    """Return text with letters for those that have marks."""
    whole = unicodedata.normalize("NFC", text).translate(SPELLED)
    parted = unicodedata.normalize("NFKD", whole)
    return "".join(sign for sign in parted if not unicodedata.combining(sign))
