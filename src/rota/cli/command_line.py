"""The Typer application, which imports only what a command needs, and its errors."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from rota.cli.context import GlobalOptions
from rota.cli.help_pages import COMMANDS, USAGE, refusal, report_error
from rota.commands.errors import DONE, FAILED, INTERRUPTED, error_code, error_record
from rota.errors import Invalid, RotaError

NAMES = frozenset(
    {"TASK", "RUN", "TASK|RUN", "RUN|TASK", "RUN|TASK...", "NAME", "THREAD", "SESSION"}
)
"""Metavars of names, which must not be empty."""
PAGE_WIDTH = 80
ANYWHERE = "Global options: --home DIR, --store ADDRESS, --url URL, --json, --debug."
INTRODUCTION = """
The duty roster for agents: decides when work happens, runs it durably, and can say why.

\b
Start:    rota up
Add:      rota add "weekdays 7:00" "Summarise my inbox"
          rota task create hello --call rota.samples:hello --every 10s
Look:     rota ls, rota status, rota runs, rota logs hello, rota why hello
Run:      rota run hello --wait

Commands are sent to the daemon if it runs; otherwise they use the database.
The global options are accepted anywhere on the command line.
"""


class _InOrder(TyperGroup):
    """Lists commands in the order of COMMANDS."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - Typer's own context
        """Return the names of the commands."""
        names = super().list_commands(ctx)
        return sorted(names, key=list(COMMANDS).index)


def build_app(command: str = "") -> typer.Typer:
    """Return the application with one command, or with all if the command is unknown."""
    app = typer.Typer(
        name="rota",
        cls=_InOrder,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "terminal_width": PAGE_WIDTH},
    )
    app.callback(help=INTRODUCTION)(_root)
    wanted = [COMMANDS[command]] if command in COMMANDS else COMMANDS.values()
    for module in dict.fromkeys(wanted):
        import_module(f"rota.cli.{module}").register(app)
    groups = [group.typer_instance for group in app.registered_groups]
    for part in (app, *(group for group in groups if group is not None)):
        for info in part.registered_commands:
            info.epilog = ANYWHERE
    return app


def render_pages(command: str = "") -> dict[str, str]:
    """Return the help of one command and those below it, or of all, by what is typed for them."""
    line: Any = get_command(build_app(command))
    lines: list[list[str]] = [] if command else [[]]
    for name in [command] if command else COMMANDS:
        below = getattr(line.commands[name], "commands", {})
        lines += [[name], *([name, verb] for verb in below)]
    return {" ".join(["rota", *words]): _help_of(line, words) for words in lines}


def _help_of(line: Any, words: list[str]) -> str:  # noqa: ANN401 - Typer's own class of commands
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        line(args=[*words, "--help"], prog_name="rota", standalone_mode=False)
    return out.getvalue()


class _AsTyped:
    """Accepts values without conversion, for which Typer would import pydantic.

    All options are texts, lists of texts or flags; the commands parse them.
    """

    @staticmethod
    def coerce(value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401, ARG004 - Typer's own
        """Return a value unchanged."""
        several = param.multiple or param.nargs == -1
        return () if value is None and several else value


def as_typed(command: Any) -> Any:  # noqa: ANN401 - Typer's own class of commands
    """Return a command without conversion of values and without help options."""
    command.add_help_option = False
    for param in command.params:
        vars(param)["get_runtime_param"] = _AsTyped
    for part in getattr(command, "commands", {}).values():
        vars(part)["make_parser"] = _strictly(part.make_parser)
        as_typed(part)
    return command


def _strictly(make: Any) -> Any:  # noqa: ANN401 - Typer's own parser
    """Return a parser factory that refuses empty names and repeated options.

    An empty name would change the meaning of a path, and of repeated options the last one would win
    silently. Global options may be repeated, so that an alias can be overridden.
    """

    def make_parser(context: Any) -> Any:  # noqa: ANN401
        parser = make(context)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:  # noqa: ANN401
            values, rest, order = parse(args)
            for param in order:
                if order.count(param) > 1 and not (param.multiple or param.is_flag):
                    message = f"{param.opts[-1]} is given {order.count(param)} times: use it once"
                    raise TyperException(message)
                _check_named(param, values.get(param.name))
            return values, rest, order

        parser.parse_args = parse_args
        return parser

    return make_parser


def _check_named(param: Any, value: Any) -> None:  # noqa: ANN401 - Typer's own
    """Refuse an empty name."""
    named = (param.metavar or "").removesuffix("...")
    if named in NAMES and "" in (value if isinstance(value, tuple | list) else [value]):
        name = param.opts[-1].removeprefix("--") if _is_option(param) else _in_words(named)
        raise Invalid(name, "", "must not be empty")


def _in_words(named: str) -> str:
    return named.lower().replace("|", " or ")


def _is_option(param: Any) -> bool:  # noqa: ANN401 - Typer's own
    return str(param.opts[-1]).startswith("-")


def _root(
    context: typer.Context,
    home: Annotated[
        str | None,
        typer.Option(
            "--home", metavar="DIR", help="Home folder [env: ROTA_HOME] [default: ~/.rota]"
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="ADDRESS",
            help="Database [env: ROTA_STORE] [default: sqlite:///HOME/rota.db]",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="Address of the daemon [env: ROTA_URL] [default: that of the home]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an unexpected error")
    ] = False,
    version: Annotated[  # noqa: ARG001 - answered before anything is loaded
        bool, typer.Option("--version", "-V", help="Show the version and exit")
    ] = False,
) -> None:
    context.obj = GlobalOptions(home=home, store=store, url=url, as_json=as_json, debug=debug)


FINDING = frozenset({"verify"})
"""Commands that exit with 1 for problems they find, and therefore with 2 for unexpected errors."""


def run_command(front: Sequence[str], words: Sequence[str]) -> int:
    """Run a command with the global options in front of it, and return the exit code."""
    as_json, debug = "--json" in front, "--debug" in front
    command = words[0] if words else ""
    line = as_typed(get_command(build_app(command)))
    try:
        code = line(args=[*front, *words], prog_name="rota", standalone_mode=False)
    except TyperException as error:
        sentence = refusal(words, render_pages) or _sentence(error)
        return report_error(_error("usage", sentence), USAGE, as_json=as_json)
    except typer.Exit as ending:
        return ending.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except RotaError as error:
        exit_code = getattr(error, "exit_code", error_code(error).exit_code)
        return report_error(_record(error, words, as_json=as_json), exit_code, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - the last resort of the program
        if debug:
            traceback.print_exc()
        advice = "" if debug else "; use --debug to see where"
        sentence = f"unexpected {type(error).__name__}: {_first_line(error)}{advice}"
        exit_code = USAGE if command in FINDING else FAILED
        return report_error(_error("unexpected", sentence), exit_code, as_json=as_json)
    return code if isinstance(code, int) else DONE


def _record(error: RotaError, words: Sequence[str], *, as_json: bool) -> dict[str, str]:
    """Return an error with its field; for people, the field is named by its option."""
    record: dict[str, str] = error_record(error)["error"]
    field = getattr(error, "field", None)
    if field is not None:
        record["field"] = field
        if not as_json:
            record["message"] = with_option_name(record["message"], field, words)
    return record


def _sentence(error: TyperException) -> str:
    text = error.format_message().rstrip(".").replace(". Did you", ": did you")
    return text[:1].lower() + text[1:]


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _error(code: str, sentence: str) -> dict[str, str]:
    return {"code": code, "message": sentence}


WHOLE = 'body "": '
"""Begin of an error about no particular field."""
FLAG = ' "True": '


def with_option_name(sentence: str, field: str, words: Sequence[str]) -> str:
    """Return an error about a field with the name of the option that was typed for it."""
    if not sentence.startswith(f'{field} "'):
        return sentence
    typed = {word.partition("=")[0] for word in words if word.startswith("--")}
    option = next((name for name in _names(field) if name in typed), None)
    if option is None:
        return sentence.removeprefix(WHOLE)
    rest = sentence.removeprefix(field)
    return option + (f": {rest.removeprefix(FLAG)}" if rest.startswith(FLAG) else rest)


def _names(field: str) -> list[str]:
    """Return the possible options for a field, most exact first."""
    from rota.commands.task_fields import TASK_FIELDS  # noqa: PLC0415 - only for a refusal

    path = field.partition("[")[0]
    options = [
        known.flag
        for known in TASK_FIELDS
        if known.option and f".{known.path}".endswith(f".{path}")
    ]
    parts = path.removeprefix("policy.").replace("_", "-").split(".")
    return [*options, f"--{'-'.join(parts[:2])}", f"--{parts[0]}"]
