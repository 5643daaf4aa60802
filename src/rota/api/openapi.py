"""The OpenAPI 3.1 document of all commands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import version
from inspect import getdoc
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from rota.api.asgi import PATH
from rota.api.event_stream import FOLLOWING, StreamRoute
from rota.commands.catalogue import Operation, every_command
from rota.commands.runs import ArtifactSelector, open_artifact
from rota.model.keys import KeyScope

REF = "#/components/schemas/{model}"
ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "description": "Stable code; see the reference."},
                "message": {"type": "string", "description": "A message for people."},
                "field": {"type": "string", "description": "The invalid field."},
                "hint": {"type": "string", "description": "What to do next."},
            },
        }
    },
}
MEANINGS = {
    "400": "The request is invalid.",
    "401": "The caller is not authenticated.",
    "403": "The caller lacks a permission.",
    "404": "It does not exist, or is not visible to this caller.",
    "409": "It exists and differs, or its state does not allow the operation.",
    "412": "It has changed since the caller read it.",
    "413": "The request is too large.",
    "415": "The body is not uncompressed JSON.",
    "429": "Too many invalid keys from this client, or too many requests of one caller.",
    "503": "A resource is not available now; the same request may succeed later.",
}
ALWAYS = ("400", "401", "403", "404", "429", "503")
CHANGES = ("409", "413", "415")
BODIES = frozenset({"POST", "PUT", "PATCH"})
MATCHED = frozenset({"change_task", "delete_task"})
DRY_RUN = {
    "name": "Rota-Dry-Run",
    "in": "header",
    "required": False,
    "description": "`true` validates the change and rolls it back (204).",
    "schema": {"type": "string", "enum": ["true", "false"]},
}
IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Repeated requests with the same key are executed once.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,256}$"},
}
IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The ETag that the caller has read; 412 if it has changed since.",
    "schema": {"type": "string"},
}
LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The cursor of the last event that the client received; overrides `after`.",
    "schema": {"type": "string"},
}
EVENT = {
    "type": "object",
    "description": "One event of the stream in the format `text/event-stream`.",
    "properties": {
        "id": {"type": "string", "description": "The cursor."},
        "event": {"type": "string", "description": "The name of the event, or `reset`."},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}


def describe_api() -> dict[str, Any]:
    """Return the document with requests and responses of all commands."""
    commands = every_command()
    models: list[tuple[type[BaseModel], Any]] = [(c.takes, "validation") for c in commands]
    models += [(c.gives, "serialization") for c in commands]
    refs, definitions = models_json_schema(list(dict.fromkeys(models)), ref_template=REF)
    schemas: dict[str, Any] = dict(definitions.get("$defs", {}))
    paths: dict[str, dict[str, Any]] = {}
    for command in commands:
        takes = schemas[_name(refs[command.takes, "validation"])]
        operation = _operation(command, takes, refs[command.gives, "serialization"], schemas)
        paths.setdefault(command.path, {})[command.method.lower()] = operation
    paths |= {route.path: {"get": _following(route)} for route in FOLLOWING}
    paths[PATH] = {"get": _download()}
    schemas["Error"] = ERROR
    used = {_name(refs[c.takes, "validation"]) for c in commands if c.method not in BODIES}
    for name in used - _referred(paths, schemas):
        schemas.pop(name, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rota",
            "summary": "A self-hosted scheduler and durable queue for scripts and agents.",
            "version": version("rota"),
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(
    command: Operation, takes: dict[str, Any], gives: dict[str, Any], schemas: dict[str, Any]
) -> dict[str, Any]:
    fields = takes.get("properties", {})
    required = set(takes.get("required", ()))
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": fields[name]}
        for name in command.named
    ]
    rest = {name: field for name, field in fields.items() if name not in command.named}
    operation: dict[str, Any] = {
        "operationId": command.name,
        "summary": command.about.partition("\n")[0].rstrip("."),
        "description": command.about,
        "tags": [command.group],
        "x-scope": command.scope.value,
        "parameters": parameters,
        "responses": _responses(command, gives),
    }
    if command.method not in BODIES:
        parameters += [
            {"name": name, "in": "query", "required": name in required, "schema": _single(field)}
            for name, field in rest.items()
        ]
    elif rest:
        body = {**takes, "properties": rest, "required": sorted(required & rest.keys())}
        if command.named:
            schemas[f"{takes['title']}Body"] = body = {**body, "title": f"{takes['title']}Body"}
        schema = {"$ref": REF.format(model=body["title"])} if command.named else body
        operation["requestBody"] = {
            "required": bool(required & rest.keys()),
            "content": {"application/json": {"schema": schema}},
        }
    if command.writes:
        parameters += [DRY_RUN, IDEMPOTENCY]
    if command.name in MATCHED:
        parameters.append(IF_MATCH)
    return operation


def _responses(command: Operation, gives: dict[str, Any]) -> dict[str, Any]:
    told = {"content": {"application/json": {"schema": gives}}}
    responses: dict[str, Any] = {str(command.status): {"description": "Done.", **told}}
    if command.writes:
        responses["204"] = {"description": "The request is valid; nothing was changed."}
    codes = [*ALWAYS, *(CHANGES if command.method != "GET" else ())]
    if command.name in MATCHED:
        codes.append("412")
    return responses | _faults(codes)


def _faults(codes: Iterable[str]) -> dict[str, Any]:
    wrong = {"application/json": {"schema": {"$ref": REF.format(model="Error")}}}
    return {code: {"description": MEANINGS[code], "content": wrong} for code in sorted(codes)}


def _following(route: StreamRoute) -> dict[str, Any]:
    """Return the responses of a stream."""
    takes = route.takes.model_json_schema()
    fields = takes["properties"]
    named = set(re.findall(r"\{(\w+)\}", route.path))
    parameters = [
        {
            "name": name,
            "in": "path" if name in named else "query",
            "required": name in named,
            "schema": _single(field),
        }
        for name, field in fields.items()
    ]
    given = {
        "description": "Events with their cursors as `id`; after `reset` read the current state.",
        "content": {"text/event-stream": {"schema": EVENT}},
    }
    over = (
        {"204": {"description": "The run has ended, and the client has received its last event."}}
        if named
        else {}
    )
    return {
        "operationId": route.does.__name__,
        "summary": route.about.partition("\n")[0].rstrip("."),
        "description": route.about,
        "tags": ["live"],
        "x-scope": KeyScope.READ.value,
        "x-stream": True,
        "parameters": [*parameters, LAST_EVENT_ID],
        "responses": {"200": given, **over, **_faults(ALWAYS)},
    }


def _download() -> dict[str, Any]:
    """Return the responses of the artifact download."""
    fields = ArtifactSelector.model_json_schema()["properties"]
    about = getdoc(open_artifact) or ""
    given = {
        "description": "The file.",
        "content": {"application/octet-stream": {"schema": {}}},
    }
    return {
        "operationId": open_artifact.__name__,
        "summary": about.partition("\n")[0].rstrip("."),
        "description": about,
        "tags": ["artifacts"],
        "x-scope": KeyScope.READ.value,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": fields[name]}
            for name in ("run", "name")
        ],
        "responses": {"200": given, **_faults(ALWAYS)},
    }


def _single(field: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a query parameter, which cannot be null."""
    kinds = field.get("anyOf")
    if kinds is None:
        return field
    real = [kind for kind in kinds if kind.get("type") != "null"]
    rest = {name: value for name, value in field.items() if name not in {"anyOf", "default"}}
    return {**real[0], **rest} if len(real) == 1 else {**rest, "anyOf": real}


def _name(ref: dict[str, Any]) -> str:
    return str(ref["$ref"]).rpartition("/")[2]


def _referred(*parts: object) -> set[str]:
    """Return the names of referenced schemas."""
    found: set[str] = set()
    todo: list[object] = list(parts)
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            if isinstance(part.get("$ref"), str):
                found.add(_name(part))
            todo += part.values()
        elif isinstance(part, list):
            todo += part
    return found
