"""`rota logs` and `rota events`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Annotated
from urllib.parse import urlencode

import typer

from rota.cli.arguments import (
    MAX_ID,
    SpaceFilter,
    SpaceName,
    optional_run,
    optional_whole_number,
)
from rota.cli.context import AGAIN_SECONDS, CliContext, Record
from rota.cli.remote import ServerSentEvent
from rota.cli.run_text import (
    OUTPUT,
    checks_text,
    drop_partial_lines,
    error_pairs,
    event_row,
    merge_retries,
    result_text,
    without_output,
)
from rota.commands.errors import INTERRUPTED
from rota.errors import NotFound, RotaError, Unavailable
from rota.model.runs import FINISHED

POLL_SECONDS = 0.05
"""How often a run is polled if there is no daemon."""
WIDTH = 18
SETTLED = "run.settled"
RESET = "reset"
"""The event after which events may be missing or repeated."""


def logs(
    context: typer.Context,
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|TASK",
            help="Number of the run, or a task for its newest run [default: the newest run]",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Continue until the run has ended")
    ] = False,
    space: SpaceName = None,
) -> None:
    """Show the events, output, deliveries and result of a run.

    Ctrl-C stops the output, not the run. With --json every event is a line.

    Example: rota logs report -f
    """
    cli = CliContext(context)
    number = find_newest_run(cli, which, space)
    run = cli.call("GET", f"/v1/runs/{number}")
    if not cli.out.as_json:
        cli.out.line(f"run {run['id']} of {run['task']}")
    try:
        last = 0
        recorded, ended = _recorded(run), run["state"] in FINISHED
        for event in _readable(cli, recorded, ended=ended):
            _print_log_event(cli, event, run)
            last = event["id"]
        if follow and not ended:
            for event in _readable(cli, _follow(cli, number, last)):
                _print_log_event(cli, event, run)
            run = cli.call("GET", f"/v1/runs/{number}")
    except KeyboardInterrupt:
        cli.out.talk(f"Stopped following; run {number} continues.")
        raise typer.Exit(INTERRUPTED) from None
    _end(cli, run)


def _readable(
    cli: CliContext, events: Iterable[Record], *, ended: bool = False
) -> Iterable[Record]:
    """Return events merged for people, or unchanged for JSON."""
    if cli.out.as_json:
        return events
    return merge_retries(drop_partial_lines(list(events)) if ended else events)


def _recorded(run: Record) -> list[Record]:
    """Return the events of a run and its output, in order."""
    output = [
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
    return sorted([*run["events"], *output], key=lambda event: event["id"])


def _follow(cli: CliContext, number: int, shown: int) -> Iterator[Record]:
    """Yield the events of a run after a shown one, until it has ended.

    After a restart of the daemon it continues, possibly at another address, without repeated or
    missing events.
    """
    daemon, last, newest = cli.daemon(), None, shown
    if daemon is None:
        yield from _poll(cli, number, shown)
        return
    while True:
        received = False
        try:
            path = f"/v1/runs/{number}/events"
            for event in daemon.follow(path, last) if daemon is not None else ():
                received = True
                if event.name == RESET:  # what follows may have been shown already
                    shown = newest
                    continue
                last = event.id
                if event.data is not None and event.data.get("id", 0) > shown:
                    newest = max(newest, event.data["id"])
                    yield event.data
                if event.name == SETTLED:
                    return
            if daemon is not None and not received and _state(cli, number) in FINISHED:
                return
        except Unavailable:
            pass
        time.sleep(AGAIN_SECONDS)
        daemon = cli.reconnect()


def _state(cli: CliContext, number: int) -> str:
    return str(cli.call("GET", f"/v1/runs/{number}")["state"])


def _poll(cli: CliContext, number: int, shown: int) -> Iterator[Record]:
    """Yield the events of a run after a shown one, until it has ended, by polling."""
    while True:
        run = cli.call("GET", f"/v1/runs/{number}")
        for event in _recorded(run):
            if event["id"] > shown:
                yield event
                shown = event["id"]
        if run["state"] in FINISHED:
            return
        time.sleep(POLL_SECONDS)


def find_newest_run(cli: CliContext, which: str | None, space: str | None) -> int:
    """Return the run of a number, or the newest run: of a task, or of all."""
    number = optional_run(which or "")
    if number is not None:
        return number
    query: Record = {"limit": 1, "space": space}
    try:
        if which is not None:
            query["task"] = cli.reference(which, space)
        found = cli.call("GET", "/v1/runs", query)["runs"]
    except RotaError as error:
        raise (error if which is None else cli.with_suggestion(error, which, space)) from None
    if not found:
        advice = f"nothing has run yet: rota run {which or 'TASK'}"
        raise NotFound("run", which or "at all", advice)
    return int(found[0]["id"])


def _print_log_event(cli: CliContext, event: Record, run: Record) -> None:
    cli.out.entry(event)
    if cli.out.as_json:
        return
    if event["name"] == OUTPUT:
        data = event["data"]
        colored = _is_colored(cli)
        text = data.get("ansi", data["text"]) if colored else data["text"]
        opened, goes_on = (data.get(flag, False) for flag in ("open", "continues"))
        ended = str(text) if opened else str(text).removesuffix("\n")
        cli.out.line(ended, opened=opened, goes_on=goes_on, coloured=colored)
    else:
        name, at, data = event_row(event, cli.zone(run["space"]))
        cli.out.line(f"{at}  {name:<{WIDTH}}  {data}".rstrip())
    sys.stdout.flush()


def _is_colored(cli: CliContext) -> bool:
    """Whether output goes to a terminal with colors."""
    return sys.stdout.isatty() and cli.around.color


def _end(cli: CliContext, run: Record) -> None:
    if cli.out.is_open:
        cli.out.line(goes_on=True)
    for delivery in run["deliveries"]:
        to = f"{delivery['channel']}:{delivery['target']}"
        cli.out.line(f"delivery to {to} ({delivery['state']}): {delivery['body']}")
    if run["state"] == "succeeded" and run["result"] is not None:
        cli.out.pairs([("result", result_text(run))])
    else:
        cli.out.pairs(
            [(name, without_output(text.rstrip(), run)) for name, text in error_pairs(run)]
        )
    if run["suppressed"] or run["check_state"] not in {None, "unverified"}:
        cli.out.talk(f"Run {run['id']} is {checks_text(run)}.")
    if run["state"] not in FINISHED:
        cli.out.talk(f"Run {run['id']} is {run['state']}.")


def events(
    context: typer.Context,
    follow: Annotated[  # noqa: ARG001 - the only mode
        bool, typer.Option("-f", "--follow", help="Continue until Ctrl-C, as always")
    ] = False,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Show only those of a run, from the first"),
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="CURSOR", help="Continue after a cursor")
    ] = None,
    space: SpaceFilter = None,
) -> None:
    """Show events as they happen, without gaps when the daemon restarts.

    With --json every event is a line with its cursor.

    Example: rota events -f
    """
    cli = CliContext(context)
    number = optional_whole_number("run", run, 1, MAX_ID)
    path = "/v1/events" if number is None else f"/v1/runs/{number}/events"
    if space is not None and number is None:
        path += "?" + urlencode({"space": space})
    last, started = after, False
    try:
        while True:
            daemon = cli.daemon()
            if daemon is None and not started:
                message = f"no daemon is running for {cli.around.home}: start `rota up`"
                raise Unavailable(message)
            try:
                for event in daemon.follow(path, last) if daemon is not None else ():
                    if not started:
                        cli.out.talk("Following events; press Ctrl-C to stop.")
                    last, started = event.id, True
                    _print_sent_event(cli, event)
                    if number is not None and event.name == SETTLED:
                        return
            except Unavailable:
                if not started:
                    raise
            time.sleep(AGAIN_SECONDS)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _print_sent_event(cli: CliContext, event: ServerSentEvent) -> None:
    if event.data is None:
        return
    cli.out.entry({"cursor": event.id, **event.data})
    if event.name == RESET:
        cli.out.talk(f"Events may be missing here: {event.data.get('reason', '')}")
    elif not cli.out.as_json:
        name, at, data = event_row(event.data, cli.zone())
        run = f"run {event.data['run']}" if event.data.get("run") else ""
        cli.out.line(f"{at}  {name:<{WIDTH}}  {run:<9}  {data}".rstrip())
    sys.stdout.flush()


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("logs")(logs)
    app.command("events")(events)
