"""The commands, put together; only the modules that are needed are loaded."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from rota.doors.cli.desk import Invocation
from rota.errors import Invalid

MODULES = MappingProxyType(
    {
        "up": "daemon",
        "once": "daemon",
        "add": "add",
        "ls": "task",
        "run": "run",
        "logs": "logs",
        "attach": "attach",
        "artifacts": "artifacts",
        "why": "why",
        "status": "status",
        "watch": "watch",
        "task": "task",
        "apply": "apply",
        "runs": "runs",
        "cancel": "runs",
        "retry": "runs",
        "backfill": "runs",
        "questions": "questions",
        "answer": "questions",
        "say": "messages",
        "messages": "messages",
        "session": "session",
        "thread": "thread",
        "next": "preview",
        "schedule": "schedule",
        "state": "state",
        "seen": "seen",
        "space": "space",
        "key": "key",
        "secret": "secret",
        "limit": "limit",
        "notify": "notify",
        "budget": "budget",
        "worker": "workers",
        "machine": "workers",
        "requests": "requests",
        "events": "events",
        "sql": "sql",
        "mcp": "mcp",
        "open": "address",
        "pause-all": "operations",
        "resume-all": "operations",
        "stop": "operations",
        "start": "operations",
        "check": "check",
        "verify": "verify",
        "backup": "backup",
        "restore": "backup",
        "service": "service",
        "doctor": "doctor",
        "completion": "completion",
    }
)
"""Which module of this folder holds a command."""

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
        return sorted(names, key=list(MODULES).index)


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
    wanted = [MODULES[command]] if command in MODULES else MODULES.values()
    for module in dict.fromkeys(wanted):
        import_module(f"rota.doors.cli.{module}").register(app)
    groups = [group.typer_instance for group in app.registered_groups]
    for part in (app, *(group for group in groups if group is not None)):
        for info in part.registered_commands:
            info.epilog = ANYWHERE
    return app


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
    context.obj = Invocation(home=home, store=store, url=url, as_json=as_json, debug=debug)
