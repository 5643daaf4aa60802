"""The Typer application, which loads only what a command needs; errors as typed."""

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
from rota.cli.help_pages import COMMANDS, USAGE, refusal, tell
from rota.commands.errors import DONE, FAILED, INTERRUPTED, error_code, fault_record
from rota.errors import Invalid, RotaError

NAMES = frozenset(
    {"TASK", "RUN", "TASK|RUN", "RUN|TASK", "RUN|TASK...", "NAME", "THREAD", "SESSION"}
)
"""What stands for something by its name, and is never empty."""
PAGE_WIDTH = 80
ANYWHERE = "Anywhere on the line: --home DIR, --store ADDRESS, --url URL, --json, --debug."
INTRODUCTION = """
The duty roster for agents: decides when work happens, runs it durably, and can say why.

\b
Start:    rota up
Add:      rota add "weekdays 7:00" "Summarise my inbox"
          rota task create hello --call rota.samples:hello --every 10s
Look:     rota ls, rota status, rota runs, rota logs hello, rota why hello
Run:      rota run hello --wait

A daemon that is up is asked; without one the commands work on the database.
--home, --store, --url, --json and --debug may stand anywhere on the line.
"""


class _InOrder(TyperGroup):
    """Lists commands in the order a newcomer meets them."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - Typer's own context
        """Return the names of the commands."""
        names = super().list_commands(ctx)
        return sorted(names, key=list(COMMANDS).index)


def build_app(command: str = "") -> typer.Typer:
    """Return the application with one command in it, or with all if there is no such command."""
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
    """Takes texts as they were typed, for which Typer would load pydantic.

    Every option here is a text, several texts or a flag; what they mean is read by the commands.
    """

    @staticmethod
    def coerce(value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401, ARG004 - Typer's own
        """Return a value as it is."""
        several = param.multiple or param.nargs == -1
        return () if value is None and several else value


def as_typed(command: Any) -> Any:  # noqa: ANN401 - Typer's own class of commands
    """Return a command whose parameters are taken as they were typed; help has its pages."""
    command.add_help_option = False
    for param in command.params:
        vars(param)["get_runtime_param"] = _AsTyped
    for part in getattr(command, "commands", {}).values():
        vars(part)["make_parser"] = _strictly(part.make_parser)
        as_typed(part)
    return command


def _strictly(make: Any) -> Any:  # noqa: ANN401 - Typer's own parser
    """Return a maker of parsers that refuse an empty name, and a second value where one is taken.

    An empty name would lead to another place than a name does. The last of several values would be
    taken without a word. In front of the commands it may be: an alias names a home, and somebody
    who uses it another one.
    """

    def make_parser(context: Any) -> Any:  # noqa: ANN401
        parser = make(context)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:  # noqa: ANN401
            values, rest, order = parse(args)
            for param in order:
                if order.count(param) > 1 and not (param.multiple or param.is_flag):
                    message = f"{param.opts[-1]} is given {order.count(param)} times: give it once"
                    raise TyperException(message)
                _check_named(param, values.get(param.name))
            return values, rest, order

        parser.parse_args = parse_args
        return parser

    return make_parser


def _check_named(param: Any, value: Any) -> None:  # noqa: ANN401 - Typer's own
    """Refuse an empty name of something that is there."""
    named = (param.metavar or "").removesuffix("...")
    if named in NAMES and "" in (value if isinstance(value, tuple | list) else [value]):
        name = param.opts[-1].removeprefix("--") if _is_option(param) else _in_words(named)
        raise Invalid(name, "", "it is empty: say which one")


def _in_words(named: str) -> str:
    return named.lower().replace("|", " or ")


def _is_option(param: Any) -> bool:  # noqa: ANN401 - Typer's own
    return str(param.opts[-1]).startswith("-")


def _root(
    context: typer.Context,
    home: Annotated[
        str | None, typer.Option("--home", metavar="DIR", help="Home folder [ROTA_HOME, ~/.rota].")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="ADDRESS", help="Database [ROTA_STORE, sqlite:///HOME/rota.db]."
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Daemon to ask [ROTA_URL, that of the home]."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an unexpected fault came from.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - answered before anything is loaded
        bool, typer.Option("--version", "-V", help="Show the version and exit.")
    ] = False,
) -> None:
    context.obj = GlobalOptions(home=home, store=store, url=url, as_json=as_json, debug=debug)


FINDING = frozenset({"verify"})
"""Commands that exit with 1 for what they found, and so with 2 for what is unexpected."""


def run_command(front: Sequence[str], words: Sequence[str]) -> int:
    """Run the command that words name, with the options that may stand anywhere in front."""
    as_json, debug = "--json" in front, "--debug" in front
    command = words[0] if words else ""
    line = as_typed(get_command(build_app(command)))
    try:
        code = line(args=[*front, *words], prog_name="rota", standalone_mode=False)
    except TyperException as fault:
        sentence = refusal(words, render_pages) or _sentence(fault)
        return tell(_error("usage", sentence), USAGE, as_json=as_json)
    except typer.Exit as ending:
        return ending.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except RotaError as fault:
        error = fault_record(fault)["error"]
        field = getattr(fault, "field", None)
        if field is not None:
            error["field"] = field
        if field is not None and not as_json:
            error["message"] = as_typed_there(error["message"], field, words)
        return tell(
            error, getattr(fault, "exit_code", error_code(fault).exit_code), as_json=as_json
        )
    except Exception as fault:  # noqa: BLE001 - the last word of the program
        if debug:
            traceback.print_exc()
        advice = "" if debug else "; run it again with --debug to see where"
        sentence = f"unexpected: {type(fault).__name__}: {_first_line(fault)}{advice}"
        not_done = USAGE if command in FINDING else FAILED
        return tell(_error("unexpected", sentence), not_done, as_json=as_json)
    return code if isinstance(code, int) else DONE


def _sentence(fault: TyperException) -> str:
    text = fault.format_message().rstrip(".").replace(". Did you", ": did you")
    return text[:1].lower() + text[1:]


def _first_line(fault: BaseException) -> str:
    return str(fault).partition("\n")[0]


def _error(code: str, sentence: str) -> dict[str, str]:
    return {"code": code, "message": sentence}


WHOLE = 'body "": '
"""How a sentence begins that is about no single field."""
FLAG = ' "True": '


def as_typed_there(sentence: str, field: str, words: Sequence[str]) -> str:
    """Return a sentence about a field as one about the option that was typed for it, if one was."""
    if not sentence.startswith(f'{field} "'):
        return sentence
    typed = {word.partition("=")[0] for word in words if word.startswith("--")}
    option = next((name for name in _names(field) if name in typed), None)
    if option is None:
        return sentence.removeprefix(WHOLE)
    rest = sentence.removeprefix(field)
    return option + (f": {rest.removeprefix(FLAG)}" if rest.startswith(FLAG) else rest)


def _names(field: str) -> list[str]:
    """Return what an option for a field may be called, the most exact first."""
    from rota.commands.task_fields import TASK_FIELDS  # noqa: PLC0415 - only for a refusal

    path = field.partition("[")[0]
    options = [
        known.flag
        for known in TASK_FIELDS
        if known.option and f".{known.path}".endswith(f".{path}")
    ]
    parts = path.removeprefix("policy.").replace("_", "-").split(".")
    return [*options, f"--{'-'.join(parts[:2])}", f"--{parts[0]}"]
