"""`rota logs` and `rota events`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Annotated
from urllib.parse import urlencode

import typer

from rota.cli.arguments import LARGEST, SpaceName, optional_whole_number
from rota.cli.context import AGAIN_SECONDS, CliContext, Record
from rota.cli.remote import ServerSentEvent
from rota.cli.run_text import (
    OUTPUT,
    as_it_stands,
    checked_words,
    error_pairs,
    event_row,
    not_told,
    result_words,
    told_once,
)
from rota.commands.errors import INTERRUPTED
from rota.errors import NotFound, RotaError, Unavailable
from rota.model.runs import FINISHED

LOOK_SECONDS = 0.05
"""How often a run is looked at where no daemon tells of it."""
WIDTH = 18
SETTLED = "run.settled"
RESET = "reset"
"""What a daemon sends that cannot go on from where the reader was."""


def logs(
    context: typer.Context,
    which: Annotated[
        str | None,
        typer.Argument(metavar="RUN|TASK", help="A run's number, or a task's newest run."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the run has ended.")
    ] = False,
    space: SpaceName = None,
) -> None:
    """Tell what happened in a run: its output, its events, its messages, its result or error.

    The newest run is told if none is named. Ctrl-C only stops the telling. With --json every event
    is a line.

    Example: rota logs report -f
    """
    desk = CliContext(context)
    number = run_of(desk, which, space)
    run = desk.call("GET", f"/v1/runs/{number}")
    if not desk.out.as_json:
        desk.out.line(f"run {run['id']} of {run['task']}")
    try:
        told = 0
        recorded, ended = _recorded(run), run["state"] in FINISHED
        for event in _legible(desk, recorded, ended=ended):
            _print_log_event(desk, event, run)
            told = event["id"]
        if follow and not ended:
            for event in _legible(desk, _following(desk, number, told)):
                _print_log_event(desk, event, run)
            run = desk.call("GET", f"/v1/runs/{number}")
    except KeyboardInterrupt:
        desk.out.talk(f"Detached: run {number} goes on.")
        raise typer.Exit(INTERRUPTED) from None
    _end(desk, run)


def _legible(
    desk: CliContext, events: Iterable[Record], *, ended: bool = False
) -> Iterable[Record]:
    """Return events as people read them; JSON has them as they are on record."""
    if desk.out.as_json:
        return events
    return told_once(as_it_stands(list(events)) if ended else events)


def _recorded(run: Record) -> list[Record]:
    """Return the events of a run with what its program wrote, in the order they happened."""
    wrote = [
        {
            "id": part["id"],
            "at": part["at"],
            "name": OUTPUT,
            "run": run["id"],
            "data": {
                "stream": part["stream"],
                "at": part["offset"],
                "text": part["text"],
                **({} if part["ansi"] is None else {"ansi": part["ansi"]}),
                **{flag: True for flag in ("open", "continues") if part.get(flag)},
            },
        }
        for part in run["logs"]
    ]
    return sorted([*run["events"], *wrote], key=lambda event: event["id"])


def _following(desk: CliContext, number: int, told: int) -> Iterator[Record]:
    """Yield what happens in a run until it has ended; a daemon that restarts is waited for.

    It may come back at another address: the home tells where. What was told is not told again, and
    what happened meanwhile is.
    """
    daemon, last, newest = desk.daemon(), None, told
    if daemon is None:
        yield from _looking(desk, number, told)
        return
    while True:
        heard = False
        try:
            path = f"/v1/runs/{number}/events"
            for event in daemon.follow(path, last) if daemon is not None else ():
                heard = True
                if event.name == RESET:  # what comes now may have been told already
                    told = newest
                    continue
                last = event.id
                if event.data is not None and event.data.get("id", 0) > told:
                    newest = max(newest, event.data["id"])
                    yield event.data
                if event.name == SETTLED:
                    return
            if daemon is not None and not heard and _state(desk, number) in FINISHED:
                return
        except Unavailable:
            pass
        time.sleep(AGAIN_SECONDS)
        daemon = desk.ask_anew()


def _state(desk: CliContext, number: int) -> str:
    return str(desk.call("GET", f"/v1/runs/{number}")["state"])


def _looking(desk: CliContext, number: int, told: int) -> Iterator[Record]:
    """Yield what happens in a run until it has ended, by looking again and again."""
    while True:
        run = desk.call("GET", f"/v1/runs/{number}")
        for event in _recorded(run):
            if event["id"] > told:
                yield event
                told = event["id"]
        if run["state"] in FINISHED:
            return
        time.sleep(LOOK_SECONDS)


def run_of(desk: CliContext, which: str | None, space: str | None) -> int:
    """Return the run of a number, or the newest run: of the task of a name, or of all."""
    digits = (which or "").removeprefix("#")
    if digits.isascii() and digits.isdigit():
        return int(digits)
    wanted: Record = {"limit": 1, "space": space}
    try:
        if which is not None:
            wanted["task"] = desk.reference(which, space)
        found = desk.call("GET", "/v1/runs", wanted)["runs"]
    except RotaError as fault:
        raise (fault if which is None else desk.better(fault, which, space)) from None
    if not found:
        raise NotFound("run", which or "at all", f"nothing has run yet: rota run {which or 'TASK'}")
    return int(found[0]["id"])


def _print_log_event(desk: CliContext, event: Record, run: Record) -> None:
    desk.out.entry(event)
    if desk.out.as_json:
        return
    if event["name"] == OUTPUT:
        data = event["data"]
        coloured = _coloured(desk)
        text = data.get("ansi", data["text"]) if coloured else data["text"]
        opened, goes_on = (data.get(flag, False) for flag in ("open", "continues"))
        ended = str(text) if opened else str(text).removesuffix("\n")
        desk.out.line(ended, opened=opened, goes_on=goes_on, coloured=coloured)
    else:
        name, at, data = event_row(event, desk.zone(run["space"]))
        desk.out.line(f"{at}  {name:<{WIDTH}}  {data}".rstrip())
    sys.stdout.flush()


def _coloured(desk: CliContext) -> bool:
    """Return whether a terminal is there to show colours, and wants them."""
    return sys.stdout.isatty() and desk.around.color


def _end(desk: CliContext, run: Record) -> None:
    if desk.out.is_open:
        desk.out.line(goes_on=True)
    for delivery in run["deliveries"]:
        to = f"{delivery['channel']}:{delivery['target']}"
        desk.out.line(f"message to {to} ({delivery['state']}): {delivery['body']}")
    if run["state"] == "succeeded" and run["result"] is not None:
        desk.out.pairs([("result", result_words(run))])
    else:
        desk.out.pairs([(name, not_told(said.rstrip(), run)) for name, said in error_pairs(run)])
    if run["suppressed"] or run["check_state"] not in {None, "unverified"}:
        desk.out.talk(f"Run {run['id']} is {checked_words(run)}.")
    if run["state"] not in FINISHED:
        desk.out.talk(f"Run {run['id']} is {run['state']}.")


def events(
    context: typer.Context,
    follow: Annotated[  # noqa: ARG001 - there is nothing else to do
        bool, typer.Option("-f", "--follow", help="Go on until Ctrl-C, as it always does.")
    ] = False,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Only of this run, from its first.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="CURSOR", help="Go on after this event.")
    ] = None,
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="Only of this space.")
    ] = None,
) -> None:
    """Tell events as they happen; a daemon that restarts is waited for, and none is left out.

    With --json every event is a line, with its cursor.

    Example: rota events -f
    """
    desk = CliContext(context)
    number = optional_whole_number("run", run, 1, LARGEST)
    path = "/v1/events" if number is None else f"/v1/runs/{number}/events"
    if space is not None and number is None:
        path += "?" + urlencode({"space": space})
    last, begun = after, False
    try:
        while True:
            daemon = desk.daemon()
            if daemon is None and not begun:
                message = f"no daemon works for {desk.around.home}: start `rota up`"
                raise Unavailable(message)
            try:
                for told in daemon.follow(path, last) if daemon is not None else ():
                    if not begun:
                        desk.out.talk("Following; Ctrl-C ends it.")
                    last, begun = told.id, True
                    _print_sent_event(desk, told)
                    if number is not None and told.name == SETTLED:
                        return
            except Unavailable:
                if not begun:
                    raise
            time.sleep(AGAIN_SECONDS)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _print_sent_event(desk: CliContext, told: ServerSentEvent) -> None:
    if told.data is None:
        return
    desk.out.entry({"cursor": told.id, **told.data})
    if told.name == RESET:
        desk.out.talk(f"Something may be missing here: {told.data.get('reason', '')}")
    elif not desk.out.as_json:
        name, at, data = event_row(told.data, desk.zone())
        of = f"run {told.data['run']}" if told.data.get("run") else ""
        desk.out.line(f"{at}  {name:<{WIDTH}}  {of:<9}  {data}".rstrip())
    sys.stdout.flush()


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("logs")(logs)
    app.command("events")(events)
