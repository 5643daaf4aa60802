"""The OpenAPI file: what FastAPI knows of the routes, and what holds for all of them."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from rota.doors.kit.catalogue import every_command

ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "description": "Stable; see the reference."},
                "message": {"type": "string", "description": "One sentence for people."},
                "field": {"type": "string", "description": "Which field is wrong."},
                "hint": {"type": "string", "description": "What to do next."},
            },
        }
    },
}
MEANINGS = {
    "400": "Something in the request must change.",
    "401": "Nobody knows who asks.",
    "403": "This caller may not do it.",
    "404": "There is no such thing, or not for this caller.",
    "409": "It exists already and differs, or its state does not allow it.",
    "412": "It has changed since the caller looked.",
    "413": "The request is too large.",
    "415": "The body is not plain JSON.",
    "429": "Too many wrong keys came from there.",
    "503": "It cannot be done now; the same request may succeed later.",
}
ALWAYS = ("400", "401", "403", "404", "429", "503")
WRITES = ("409", "413", "415")
DRY_RUN = {
    "name": "Rota-Dry-Run",
    "in": "header",
    "description": "`true` tries the change and takes it back: 204, and nothing was changed.",
    "schema": {"type": "string", "enum": ["true", "false"]},
}
IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same request under the same key is carried out once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[!-~]+$"},
}
IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "description": "The ETag of what the caller has seen; 412 if it has changed since.",
    "schema": {"type": "string", "pattern": '^(\\*|"[!#-~]*")$'},
}
MATCHED = frozenset({"change_task", "delete_task"})


def describe_api(app: FastAPI) -> dict[str, Any]:
    """Return the document that says what every route takes and gives."""
    document = get_openapi(
        title="Rota",
        version=version("rota"),
        summary="The duty roster for agents.",
        routes=app.routes,
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Error"] = ERROR
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}]
    for command in every_command():
        operation = document["paths"][command.path][command.method.lower()]
        responses = operation["responses"]
        responses.pop("422", None)
        codes = (*ALWAYS, *(WRITES if command.method != "GET" else ()))
        if command.name in MATCHED:
            codes = (*codes, "412")
        for code in sorted(codes):
            responses[code] = {
                "description": MEANINGS[code],
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            }
        if command.writes:
            responses["204"] = {"description": "It would be done; nothing was changed."}
            operation.setdefault("parameters", []).extend([DRY_RUN, IDEMPOTENCY])
        if command.name in MATCHED:
            operation["parameters"].append(IF_MATCH)
        operation["x-scope"] = command.scope.value
    return document
