"""`rota logs`: what happened in a run, and what happens."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from rota.doors.cli.desk import AGAIN_SECONDS, Desk, Record
from rota.doors.cli.log_words import OUTPUT, as_it_stands, not_told, told_once
from rota.doors.cli.run_words import checked_words, error_pairs, event_row, result_words
from rota.doors.cli.values import SpaceName
from rota.doors.kit.faults import INTERRUPTED
from rota.errors import NotFound, RotaError, Unavailable
from rota.model.states import FINISHED

LOOK_SECONDS = 0.05
"""How often a run is looked at where no daemon tells of it."""
WIDTH = 18
SETTLED = "run.settled"
RESET = "reset"
"""What a daemon sends that cannot go on from where the reader was."""


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("logs")(logs)


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
    desk = Desk(context)
    number = run_of(desk, which, space)
    run = desk.call("GET", f"/v1/runs/{number}")
    if not desk.out.as_json:
        desk.out.line(f"run {run['id']} of {run['task']}")
    try:
        told = 0
        recorded, ended = _recorded(run), run["state"] in FINISHED
        for event in _legible(desk, recorded, ended=ended):
            _tell(desk, event, run)
            told = event["id"]
        if follow and not ended:
            for event in _legible(desk, _following(desk, number, told)):
                _tell(desk, event, run)
            run = desk.call("GET", f"/v1/runs/{number}")
    except KeyboardInterrupt:
        desk.out.talk(f"Detached: run {number} goes on.")
        raise typer.Exit(INTERRUPTED) from None
    _end(desk, run)


def _legible(desk: Desk, events: Iterable[Record], *, ended: bool = False) -> Iterable[Record]:
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


def _following(desk: Desk, number: int, told: int) -> Iterator[Record]:
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


def _state(desk: Desk, number: int) -> str:
    return str(desk.call("GET", f"/v1/runs/{number}")["state"])


def _looking(desk: Desk, number: int, told: int) -> Iterator[Record]:
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


def run_of(desk: Desk, which: str | None, space: str | None) -> int:
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


def _tell(desk: Desk, event: Record, run: Record) -> None:
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


def _coloured(desk: Desk) -> bool:
    """Return whether a terminal is there to show colours, and wants them."""
    return sys.stdout.isatty() and desk.around.color


def _end(desk: Desk, run: Record) -> None:
    if desk.out.is_open:
        desk.out.line(goes_on=True)
    for delivery in run["deliveries"]:
        to = f"{delivery['channel']}:{delivery['target']}"
        desk.out.line(f"message to {to} ({delivery['state']}): {delivery['body']}")
    if run["state"] == "succeeded" and run["result"] is not None:
        desk.out.pairs([("result", result_words(run))])
    else:
        desk.out.pairs([(name, not_told(said.rstrip(), run)) for name, said in error_pairs(run)])
    if run["mark"] or run["checked"] not in {None, "unverified"}:
        desk.out.talk(f"Run {run['id']} is {checked_words(run)}.")
    if run["state"] not in FINISHED:
        desk.out.talk(f"Run {run['id']} is {run['state']}.")
