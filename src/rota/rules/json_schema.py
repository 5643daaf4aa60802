"""The supported part of JSON Schema.

`$ref` is not supported because it may load other documents, `pattern` because matching may not end.
Unsupported keywords are rejected when a schema is written, so that no part of it is silently
ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

from rota.errors import Invalid

SchemaValue: TypeAlias = Any
"""The value of a keyword; it was validated when the schema was written."""
MAX_DEPTH = 32
MAX_PARTS = 1_000
MAX_NAME = 200
"""Of a property: errors contain the whole path to it."""
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
"""Keywords whose values are not schemas."""
KNOWN = PLAIN | LISTS | INNER | COUNTS | AMOUNTS | NOTES


def check_schema(schema: object, field: str = "json_schema") -> None:
    """Raise Invalid for the first part of a schema that is wrong or not supported.

    Schemas, values and names in them count as parts: each costs time for every validated value.
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
            _check_keyword(name, value, where)
            inside = islice(_inside(name, value), MAX_PARTS + 1)
            waiting += [(inner, f"{where}.{at}", depth + 1) for at, inner in inside]


def _size(value: object, limit: int) -> int:
    """Return the number of values in a value; counting stops above `limit`."""
    size, waiting = 0, [value]
    while waiting and size <= limit:
        part = waiting.pop()
        size += 1
        if isinstance(part, (list, dict)):
            waiting += part.values() if isinstance(part, dict) else part
    return size


def _check_keyword(name: str, value: object, where: str) -> None:
    at = f"{where}.{name}"
    if name not in KNOWN:
        known = ", ".join(sorted(KNOWN - NOTES))
        raise Invalid(where, name, f"this keyword is not supported; supported are {known}")
    if name == "type":
        names = value if isinstance(value, list) else [value]
        if not names or not all(isinstance(one, str) and one in TYPES for one in names):
            raise Invalid(at, value, f"use one of {', '.join(TYPES)}")
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


def _inside(name: str, value: SchemaValue) -> Iterator[tuple[str, object]]:
    """Yield the schemas in the value of a keyword, each with its path."""
    if name == "properties":
        yield from ((f"properties.{key}", inner) for key, inner in value.items())
    elif name in LISTS:
        yield from ((f"{name}[{n}]", inner) for n, inner in enumerate(value))
    elif name in INNER:
        yield name, value


def schema_errors(value: object, schema: object) -> list[str]:
    """Return the first few errors of a value against a valid schema."""
    found: list[str] = []
    for error in _errors(value, schema, "it"):
        found.append(error)
        if len(found) >= MAX_ERRORS:
            break
    return found


def _fits(value: object, schema: object) -> bool:
    return next(_errors(value, schema, ""), None) is None


def _errors(value: object, schema: SchemaValue, where: str) -> Iterator[str]:
    if isinstance(schema, bool):
        if not schema:
            yield f"{where} must not be there"
        return
    yield from _value_errors(value, schema, where)
    yield from _choice_errors(value, schema, where)
    if isinstance(value, str):
        yield from _size_errors(len(value), schema, "Length", "characters", where)
    elif isinstance(value, list):
        yield from _size_errors(len(value), schema, "Items", "items", where)
        for n, item in enumerate(value):
            yield from _errors(item, schema.get("items", True), f"{where}[{n}]")
    elif isinstance(value, dict):
        yield from _size_errors(len(value), schema, "Properties", "fields", where)
        yield from _object_errors(value, schema, where)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _amount_errors(value, schema, where)


def _value_errors(value: object, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    types = schema.get("type")
    names = [types] if isinstance(types, str) else types
    if names is not None and not any(_has_type(value, name) for name in names):
        yield f"{where} is not of the type {' or '.join(names)}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{where} is not {schema['const']!r}"
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        yield f"{where} is not one of the allowed values"


def _choice_errors(value: object, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    for inner in schema.get("allOf", ()):
        yield from _errors(value, inner, where)
    if "anyOf" in schema and not any(_fits(value, inner) for inner in schema["anyOf"]):
        yield f"{where} matches none of anyOf"
    if "oneOf" in schema and sum(_fits(value, inner) for inner in schema["oneOf"]) != 1:
        yield f"{where} does not match exactly one of oneOf"
    if "not" in schema and _fits(value, schema["not"]):
        yield f"{where} matches the schema under not"


def _object_errors(value: dict[str, Any], schema: Mapping[str, Any], where: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where}.{name} is missing"
    properties = schema.get("properties", {})
    for name, inner in value.items():
        allowed = (
            properties[name] if name in properties else schema.get("additionalProperties", True)
        )
        yield from _errors(inner, allowed, f"{where}.{name[:80]}")


def _size_errors(
    size: int, schema: Mapping[str, Any], word: str, unit: str, where: str
) -> Iterator[str]:
    minimum, maximum = schema.get(f"min{word}", 0), schema.get(f"max{word}")
    if size < minimum:
        yield f"{where} has {size} {unit}, fewer than {minimum}"
    if maximum is not None and size > maximum:
        yield f"{where} has {size} {unit}, more than {maximum}"


def _amount_errors(value: float, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{where} is less than {schema['minimum']}"
    if "maximum" in schema and value > schema["maximum"]:
        yield f"{where} is more than {schema['maximum']}"
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        yield f"{where} is not more than {schema['exclusiveMinimum']}"
    if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
        yield f"{where} is not less than {schema['exclusiveMaximum']}"


def _has_type(value: object, name: str) -> bool:
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    is_flag = isinstance(value, bool)
    return isinstance(value, TYPES[name]) and (not is_flag or name == "boolean")


def _same(one: object, other: object) -> bool:
    """Whether two values are equal in JSON, where true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return one == other
