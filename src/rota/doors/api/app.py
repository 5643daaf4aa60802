"""The application: a route for every command of the catalogue, and nothing that decides."""

from __future__ import annotations

import inspect
import logging
from typing import Annotated, Any

from fastapi import Body, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, create_model
from starlette.exceptions import HTTPException

from rota.doors.api.openapi import describe_api
from rota.doors.api.sharing import Sharing
from rota.doors.commands.shapes import Asked
from rota.doors.kit.catalogue import Command, every_command
from rota.doors.kit.faults import fault_record, told
from rota.doors.kit.office import House, Office
from rota.doors.kit.perform import Answer, perform, read_request
from rota.errors import Invalid, RotaError
from rota.rules.permission import check_scope

log = logging.getLogger(__name__)

BODIES = frozenset({"POST", "PUT", "PATCH"})
YES = frozenset({"true", "1", "yes"})
CODES = {404: "not_found", 405: "method_not_allowed"}


def build_app(house: House) -> FastAPI:
    """Return the application with every route in it."""
    app = FastAPI(title="Rota", openapi_url=None, docs_url=None, redoc_url=None)
    sharing: Sharing[Answer] = Sharing()
    for command in every_command():
        _add(app, command, house, sharing)
    document = describe_api(app)

    async def openapi() -> Response:
        return JSONResponse(document)

    async def ready() -> Response:
        await house.store.next_due()
        return JSONResponse({"status": "ok"})

    app.add_route("/v1/openapi.json", _plain(openapi))
    app.add_route("/readyz", _plain(ready))
    app.add_exception_handler(RotaError, _tell)
    app.add_exception_handler(RequestValidationError, _tell_invalid)
    app.add_exception_handler(HTTPException, _tell_http)
    app.add_exception_handler(Exception, _tell_unexpected)
    return app


def _plain(function: Any) -> Any:  # noqa: ANN401 - a coroutine function of no arguments
    async def route(request: Request) -> Response:  # noqa: ARG001
        response: Response = await function()
        return response

    return route


async def _look(
    sharing: Sharing[Answer], command: Command, office: Office, asked: BaseModel
) -> Answer:
    """Answer a question together with everybody who sees the same and asks the same."""
    check_scope(office.caller, command.scope)
    seen_as = (office.caller.role, office.caller.space)
    question = (command.name, seen_as, asked.model_dump_json())
    return await sharing.ask(question, lambda: perform(command, office, asked))


def _add(app: FastAPI, command: Command, house: House, sharing: Sharing[Answer]) -> None:
    """Add one route whose signature says what the command takes."""
    rest = _rest_of(command)
    whole = rest is command.takes

    async def endpoint(request: Request, **given: Any) -> Response:  # noqa: ANN401
        said = given.pop("said", None)
        if whole and said is not None:
            asked = said
        else:
            more = {} if said is None else said.model_dump(exclude_unset=True)
            asked = read_request(command.takes, {**more, **given})
        headers = request.headers
        office = Office(
            store=house.store,
            caller=request.scope["caller"],
            chance=house.chance,
            bounds=house.bounds,
            stands=headers.get("if-match"),
        )
        if command.writes:
            answer = await perform(
                command,
                office,
                asked,
                key=headers.get("idempotency-key"),
                rehearsal=headers.get("rota-dry-run", "").lower() in YES,
            )
        else:
            answer = await _look(sharing, command, office, asked)
        response = Response(answer.text or None, answer.status, media_type="application/json")
        if answer.etag is not None:
            response.headers["etag"] = answer.etag
        if answer.again:
            response.headers["idempotency-replayed"] = "true"
        return response

    endpoint.__name__ = command.name
    vars(endpoint)["__signature__"] = _signature(command, rest)
    app.add_api_route(
        command.path,
        endpoint,
        methods=[command.method],
        status_code=command.status,
        response_model=command.gives,
        operation_id=command.name,
        summary=command.about.partition("\n")[0].rstrip("."),
        description=command.about,
        tags=[command.group],
    )


def _rest_of(command: Command) -> type[BaseModel] | None:
    """Return the model of what a command takes beside its path, if that is anything."""
    fields = {
        name: info for name, info in command.takes.model_fields.items() if name not in command.named
    }
    if not fields:
        return None
    if len(fields) == len(command.takes.model_fields):
        return command.takes
    named: dict[str, Any] = {name: (info.annotation, info) for name, info in fields.items()}
    return create_model(f"{command.takes.__name__}Body", __base__=Asked, **named)


def _signature(command: Command, rest: type[BaseModel] | None) -> inspect.Signature:
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("request", kind, annotation=Request)]
    for name in command.named:
        info = command.takes.model_fields[name]
        annotation = _annotated(info.annotation, *info.metadata, Path())
        parameters.append(inspect.Parameter(name, kind, annotation=annotation))
    if rest is not None and command.method in BODIES:
        needed = any(info.is_required() for info in rest.model_fields.values())
        wanted = _annotated(rest if needed else rest | None, Body())
        default = inspect.Parameter.empty if needed else None
        parameters.append(inspect.Parameter("said", kind, annotation=wanted, default=default))
    elif rest is not None:
        parameters.append(inspect.Parameter("said", kind, annotation=_annotated(rest, Query())))
    return inspect.Signature(parameters)


def _annotated(kind: object, *more: object) -> Any:  # noqa: ANN401 - a type
    annotated: Any = Annotated
    return annotated[(kind, *more)]


async def _tell(request: Request, fault: Exception) -> Response:  # noqa: ARG001
    assert isinstance(fault, RotaError)  # noqa: S101 - registered for nothing else
    status = getattr(fault, "status", told(fault).status)
    return JSONResponse(fault_record(fault), status)


async def _tell_invalid(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, RequestValidationError)  # noqa: S101 - registered for nothing else
    first = fault.errors()[0]
    place = [str(part) for part in first["loc"] if part not in {"body", "query", "path"}]
    advice = first["msg"].removeprefix("Value error, ")
    value = "" if first["type"] in {"missing", "json_invalid"} else first.get("input", "")
    invalid = Invalid(".".join(place) or "body", value, advice[:1].lower() + advice[1:])
    return await _tell(request, invalid)


async def _tell_http(request: Request, fault: Exception) -> Response:  # noqa: ARG001
    assert isinstance(fault, HTTPException)  # noqa: S101 - registered for nothing else
    code = CODES.get(fault.status_code, "bad_request")
    message = {404: "there is nothing here: see /v1/openapi.json"}.get(
        fault.status_code, str(fault.detail).lower()
    )
    record = {"error": {"code": code, "message": message}}
    return JSONResponse(record, fault.status_code, headers=dict(fault.headers or {}))


async def _tell_unexpected(request: Request, fault: Exception) -> Response:
    log.error("api.unexpected", exc_info=fault, extra={"path": request.url.path})
    error = {"code": "unexpected", "message": "something went wrong here; the log says more"}
    return JSONResponse({"error": error}, 500)
