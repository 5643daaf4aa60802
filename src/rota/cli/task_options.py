"""Options of `rota task create` and `rota task edit`, made from TASK_FIELDS."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer

from rota.cli.arguments import number_between, text_or_input, whole_number
from rota.cli.context import REMOVE, CliContext, Record
from rota.commands.task_fields import NONE, TASK_FIELDS, FieldKind, TaskCommand, TaskField
from rota.errors import Invalid
from rota.rules.checks import MAX_MIN_LENGTH

LOCAL_THREAD = "cli"
TYPED = "typed"
"""The parameter by which a command gets what was typed, by the names of the parameters."""
Handler = Callable[..., None]


def with_task_options(command: TaskCommand) -> Callable[[Handler], Handler]:
    """Add the options of the fields that a command takes, in place of its parameter `typed`."""

    def decorate(handler: Handler) -> Handler:
        own = signature(handler, eval_str=True).parameters.values()
        options = list(_options(command))

        @wraps(handler)
        def run(**values: Any) -> None:  # noqa: ANN401 - what was typed
            typed = {option.name: values.pop(option.name) for option in options}
            handler(**values, typed=typed)

        parameters = [p for one in own for p in (options if one.name == TYPED else [one])]
        vars(run)["__signature__"] = Signature(
            [p.replace(kind=Parameter.KEYWORD_ONLY) for p in parameters]
        )
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _options(command: TaskCommand) -> Iterable[Parameter]:
    for field in TASK_FIELDS:
        if not field.option or command not in field.commands:
            continue
        text = _help_text(field, command)
        name, _, metavar = field.option.partition(" ")
        declared = typer.Option(name, metavar=metavar or None, help=text)
        if field.kind is FieldKind.FLAG and "/" not in field.option:
            yield _parameter(field.parameter, bool, declared, default=False)
        else:
            kind = bool if field.kind is FieldKind.FLAG else list[str] if field.is_list else str
            yield _parameter(field.parameter, kind | None, declared)
        if command is TaskCommand.EDIT and _has_off_option(field):
            off = typer.Option(field.off, help=f"Remove the value of {field.flag}")
            yield _parameter(_off_parameter(field), bool, off, default=False)


def _help_text(field: TaskField, command: TaskCommand) -> str:
    parts = [field.help + ("; - reads standard input" if field.kind is FieldKind.TEXT else "")]
    if command is TaskCommand.EDIT and field.off == NONE:
        parts[0] += "; none removes it"
    if field.choices:
        parts.append(f"[possible values: {', '.join(str(choice) for choice in field.choices)}]")
    if command is not TaskCommand.EDIT and field.default:
        parts.append(f"[default: {field.default}]")
    return " ".join(parts)


def _parameter(name: str, kind: Any, option: object, *, default: object = None) -> Parameter:  # noqa: ANN401
    annotation = Annotated[kind, option]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _has_off_option(field: TaskField) -> bool:
    return field.off.startswith("--")


def _off_parameter(field: TaskField) -> str:
    return f"no_{field.parameter}"


def task_body(typed: Mapping[str, Any]) -> Record:
    """Return the fields of a request that the typed options give, with REMOVE for removed ones."""
    body: Record = {}
    given = {field.path: field for field in TASK_FIELDS if _is_given(typed, field)}
    for field in given.values():
        value = typed[field.parameter]
        if field.needs and field.needs not in given:
            raise _stray(field, value)
        if field.off == NONE and value in (NONE, [NONE]):
            _remove(body, field)
        else:
            _put(body, field.path, _read(field, value))
    for field in filter(_has_off_option, TASK_FIELDS):
        if typed.get(_off_parameter(field)):
            if field.path in given:
                advice = f"give either {field.flag} or {field.off}"
                raise Invalid(field.off.removeprefix("--"), typed[field.parameter], advice)
            body[field.root] = REMOVE
    _check_schedule(typed, given)
    if "command" in given:
        line, body["shell"] = typed[given["command"].parameter], "shell" in given
        body["command"] = [line] if body["shell"] else words_of(line)
    return body


def _is_given(typed: Mapping[str, Any], field: TaskField) -> bool:
    value = typed.get(field.parameter) if field.option else None
    plain_flag = field.kind is FieldKind.FLAG and "/" not in field.option
    return value is not None and value != [] and not (plain_flag and value is False)


def _stray(field: TaskField, value: object) -> Invalid:
    needed = next(other for other in TASK_FIELDS if other.path == field.needs)
    said = "yes" if value is True else value
    return Invalid(field.flag.removeprefix("--"), said, f"goes with {needed.flag}")


def _remove(body: Record, field: TaskField) -> None:
    """Remove a value: a field of the policy by itself, any other one with all of its group."""
    if field.root == "policy":
        _put(body, field.path, None)
    else:
        body[field.root] = REMOVE


def _put(body: Record, path: str, value: object) -> None:
    *groups, name = path.split(".")
    for group in groups:
        body = body.setdefault(group, {})
    body[name] = value


RULES = ("cron", "rrule", "every", "at", "times")


def _check_schedule(typed: Mapping[str, Any], given: Mapping[str, TaskField]) -> None:
    """Refuse two rules, and options of a schedule without one."""
    fields = [field for field in given.values() if field.root == "schedule"]
    rules = [field.flag for field in fields if field.name in RULES]
    if len(rules) > 1:
        raise Invalid("schedule", " and ".join(rules), "give at most one of them")
    if fields and not rules:
        all_rules = " ".join(f.flag for f in TASK_FIELDS if f.path in _rule_paths())
        advice = f"needs a schedule: give one of {all_rules}"
        raise Invalid(fields[0].flag.removeprefix("--"), typed[fields[0].parameter], advice)


def _rule_paths() -> set[str]:
    return {f"schedule.{name}" for name in RULES}


def _read(field: TaskField, value: Any) -> object:  # noqa: ANN401 - what was typed
    """Return the value of a field from the text of its option."""
    name = field.flag.removeprefix("--")
    least, most = field.bounds or (0, 0)
    match field.kind:
        case FieldKind.TEXT:
            return text_or_input(value)
        case FieldKind.COMMAND:
            return value if field.path == "command" else words_of(value)
        case FieldKind.INTEGER:
            return whole_number(name, value, int(least), int(most))
        case FieldKind.NUMBER:
            return number_between(name, value, least, most)
        case FieldKind.CHECKS:
            return [check_of(line) for line in value]
        case FieldKind.RANGE:
            return _range_of(name, value)
        case _:
            return value


def _range_of(name: str, text: str) -> Record:
    least, dots, most = text.partition("..")
    if not dots:
        raise Invalid(name, text, "write the shortest and the longest, such as 10m..1d")
    return {"min": least.strip(), "max": most.strip()}


def words_of(line: str) -> list[str]:
    """Return a line as the words of a command; only quotes have a meaning in it."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise Invalid("command", line, f"close its quotes ({error})") from None


def check_of(line: str) -> Record:
    """Return one check: `kind=value`, or the same in JSON."""
    if line.lstrip().startswith("{"):
        try:
            read: Record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Invalid("check", line, f"not valid JSON: {error}") from None
        return read
    kind, equals, value = (part.strip() for part in line.partition("="))
    if not equals or not value:
        raise Invalid("check", line, "write KIND=VALUE, such as min_length=200")
    match kind:
        case "command":
            return {kind: words_of(value)}
        case "min_length":
            return {kind: whole_number("check", value, 1, MAX_MIN_LENGTH)}
        case "url":
            url, _, text = value.partition(" ")
            return {kind: url, **({"contains": text.strip()} if text.strip() else {})}
        case "json_schema":
            return check_of(f'{{"json_schema": {value}}}')
        case "not_like" if len(value) > 2 and value[0] == value[-1] == "/":  # noqa: PLR2004
            return {kind: value[1:-1], "regex": True}
        case _:
            return {kind: value}


def default_thread(context: CliContext, typed: str | None, space: str | None) -> str:
    """Return the thread of a new task: the given one, or the space's own thread of this command."""
    if typed or context.around.thread:
        return str(typed or context.around.thread)
    name = space or context.home_space
    return f"{LOCAL_THREAD}:{'default' if name == 'main' else name}"
