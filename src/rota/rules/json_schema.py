"""The supported part of JSON Schema.

Left out on purpose: `$ref`, which may lead elsewhere, and `pattern`, which may never end. What is
not understood is refused when the schema is written, so that nothing seems to hold that was not
looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

from rota.errors import Invalid

Word: TypeAlias = Any
"""What a word of a schema says; it was checked when the schema was written."""
MAX_DEPTH = 32
MAX_PARTS = 1_000
MAX_NAME = 200
"""Of a field: faults name the whole way to it."""
MAX_ERRORS = 3
TYPES: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}
LISTS = frozenset({"allOf", "anyOf", "oneOf"})
INNER = frozenset({"items", "additionalProperties", "not"})
COUNTS = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
)
AMOUNTS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
NOTES = frozenset({"$schema", "$id", "$comment", "title", "description", "default", "examples"})
PLAIN = frozenset({"type", "enum", "const", "properties", "required"})
VALUES = frozenset({"type", "enum", "const", "required"})
"""Words that hold values which are no schemas."""
KNOWN = PLAIN | LISTS | INNER | COUNTS | AMOUNTS | NOTES


def check_schema(schema: object, field: str = "json_schema") -> None:
    """Raise Invalid for the first part of a schema that is wrong or not understood here.

    Parts are schemas as well as the values and names in them: each costs time for every value that
    is held against it.
    """
    parts = 0
    waiting: list[tuple[object, str, int]] = [(schema, field, 0)]
    while waiting:
        part, where, depth = waiting.pop()
        if isinstance(part, dict):
            parts += sum(_size(value, MAX_PARTS) for name, value in part.items() if name in VALUES)
        parts += 1
        if parts > MAX_PARTS or depth > MAX_DEPTH:
            raise Invalid(field, where, f"keep it within {MAX_PARTS} parts and {MAX_DEPTH} levels")
        if isinstance(part, bool):
            continue
        if not isinstance(part, dict):
            raise Invalid(where, part, "write an object, true or false")
        for name, value in part.items():
            _check_word(name, value, where)
            inside = islice(_inside(name, value), MAX_PARTS + 1)
            waiting += [(inner, f"{where}.{at}", depth + 1) for at, inner in inside]


def _size(value: object, most: int) -> int:
    """Return of how many values a value is made, or a number beyond `most`."""
    size, waiting = 0, [value]
    while waiting and size <= most:
        part = waiting.pop()
        size += 1
        if isinstance(part, (list, dict)):
            waiting += part.values() if isinstance(part, dict) else part
    return size


def _check_word(name: str, value: object, where: str) -> None:
    at = f"{where}.{name}"
    if name not in KNOWN:
        known = ", ".join(sorted(KNOWN - NOTES))
        raise Invalid(where, name, f"this word is not understood here: there are {known}")
    if name == "type":
        names = value if isinstance(value, list) else [value]
        if not names or not all(isinstance(one, str) and one in TYPES for one in names):
            raise Invalid(at, value, f"choose of {', '.join(TYPES)}")
    elif name == "enum" and not (isinstance(value, list) and value):
        raise Invalid(at, value, "give a list of values")
    elif name == "required" and not (
        isinstance(value, list) and all(isinstance(one, str) for one in value)
    ):
        raise Invalid(at, value, "give a list of names")
    elif name in COUNTS and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise Invalid(at, value, "give a number from 0")
    elif name in AMOUNTS and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise Invalid(at, value, "give a number")
    elif name == "properties":
        _check_properties(value, at)
    elif name in LISTS and not (isinstance(value, list) and value):
        raise Invalid(at, value, "give a list of schemas")


def _check_properties(value: object, at: str) -> None:
    if not isinstance(value, dict):
        raise Invalid(at, value, "give an object of schemas")
    long = next((name for name in value if len(name) > MAX_NAME), None)
    if long is not None:
        raise Invalid(at, long, f"keep names within {MAX_NAME} characters")


def _inside(name: str, value: Word) -> Iterator[tuple[str, object]]:
    """Yield the schemas that a word holds, each with its place."""
    if name == "properties":
        yield from ((f"properties.{key}", inner) for key, inner in value.items())
    elif name in LISTS:
        yield from ((f"{name}[{n}]", inner) for n, inner in enumerate(value))
    elif name in INNER:
        yield name, value


def faults_of(value: object, schema: object) -> list[str]:
    """Return the first few things in which a value does not fit a schema that is well written."""
    found: list[str] = []
    for fault in _faults(value, schema, "it"):
        found.append(fault)
        if len(found) >= MAX_ERRORS:
            break
    return found


def _fits(value: object, schema: object) -> bool:
    return next(_faults(value, schema, ""), None) is None


def _faults(value: object, schema: Word, where: str) -> Iterator[str]:
    if isinstance(schema, bool):
        if not schema:
            yield f"{where} must not be there"
        return
    yield from _of_itself(value, schema, where)
    yield from _of_choices(value, schema, where)
    if isinstance(value, str):
        yield from _of_size(len(value), schema, "Length", "characters", where)
    elif isinstance(value, list):
        yield from _of_size(len(value), schema, "Items", "items", where)
        for n, item in enumerate(value):
            yield from _faults(item, schema.get("items", True), f"{where}[{n}]")
    elif isinstance(value, dict):
        yield from _of_size(len(value), schema, "Properties", "fields", where)
        yield from _of_object(value, schema, where)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _of_amount(value, schema, where)


def _of_itself(value: object, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    told = schema.get("type")
    names = [told] if isinstance(told, str) else told
    if names is not None and not any(_is(value, name) for name in names):
        yield f"{where} is not of the type {' or '.join(names)}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{where} is not {schema['const']!r}"
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        yield f"{where} is none of the values it may be"


def _of_choices(value: object, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    for inner in schema.get("allOf", ()):
        yield from _faults(value, inner, where)
    if "anyOf" in schema and not any(_fits(value, inner) for inner in schema["anyOf"]):
        yield f"{where} fits none of anyOf"
    if "oneOf" in schema and sum(_fits(value, inner) for inner in schema["oneOf"]) != 1:
        yield f"{where} does not fit exactly one of oneOf"
    if "not" in schema and _fits(value, schema["not"]):
        yield f"{where} is what it must not be"


def _of_object(value: dict[str, Any], schema: Mapping[str, Any], where: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where}.{name} is missing"
    told = schema.get("properties", {})
    for name, inner in value.items():
        allowed = told[name] if name in told else schema.get("additionalProperties", True)
        yield from _faults(inner, allowed, f"{where}.{name[:80]}")


def _of_size(
    size: int, schema: Mapping[str, Any], word: str, unit: str, where: str
) -> Iterator[str]:
    least, most = schema.get(f"min{word}", 0), schema.get(f"max{word}")
    if size < least:
        yield f"{where} has {size} {unit}, fewer than {least}"
    if most is not None and size > most:
        yield f"{where} has {size} {unit}, more than {most}"


def _of_amount(value: float, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{where} is less than {schema['minimum']}"
    if "maximum" in schema and value > schema["maximum"]:
        yield f"{where} is more than {schema['maximum']}"
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        yield f"{where} is not more than {schema['exclusiveMinimum']}"
    if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
        yield f"{where} is not less than {schema['exclusiveMaximum']}"


def _is(value: object, name: str) -> bool:
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    is_flag = isinstance(value, bool)
    return isinstance(value, TYPES[name]) and (not is_flag or name == "boolean")


def _same(one: object, other: object) -> bool:
    """Whether two values are equal as JSON has it: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return one == other
