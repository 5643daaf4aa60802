"""Schemas for programs and their models: short, whole, and without references.

What pydantic says of a request is exact and long. Models read every word of it in every turn, and
some clients cannot follow a reference. So titles, empty defaults and what a text may hold are left
out, and definitions are put where they are used; every request is looked at in full when it comes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel

DEFINITIONS = "#/$defs/"
DROPPED = frozenset(
    {
        *("title", "$defs", "pattern", "not", "additionalProperties"),
        *("minLength", "maxLength", "minItems", "maxItems"),
    }
)


def plain_schema(takes: type[BaseModel], optional: Collection[str] = ()) -> dict[str, Any]:
    """Return the schema of a request in which some fields may be left out."""
    whole = takes.model_json_schema()
    plain: dict[str, Any] = _plain(whole, whole.get("$defs", {}))
    plain.pop("description", None)
    plain.setdefault("properties", {})
    needed = [name for name in plain.pop("required", ()) if name not in optional]
    return {**plain, "required": needed} if needed else plain


def _plain(part: Any, known: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any value of JSON
    if isinstance(part, list):
        return [_plain(one, known) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        meant = known[part["$ref"].removeprefix(DEFINITIONS)]
        rest = {name: value for name, value in part.items() if name != "$ref"}
        return _plain({**meant, **rest}, known)
    kept = {
        name: _named(value, known) if name == "properties" else _plain(value, known)
        for name, value in part.items()
        if name not in DROPPED and not (name == "default" and not value)
    }
    return _single(kept)


def _named(properties: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties, of which any may be called `title`."""
    return {name: _plain(value, known) for name, value in properties.items()}


def _single(part: dict[str, Any]) -> dict[str, Any]:
    """Return a field that may be null as one that may be left out."""
    choices = [one for one in part.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        rest = {name: value for name, value in part.items() if name != "anyOf"}
        return {**choices[0], **rest}
    if choices:
        return {**part, "anyOf": choices}
    return part
