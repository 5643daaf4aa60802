"""What happened in a run, as people read it: told once, and as it stands by now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rota.doors.cli.desk import Record
from rota.model.faults import FaultKind
from rota.model.texts import MORE

OUTPUT = "run.output"
FAULT = "run.fault"
SHOWN = ("text", "ansi")
KINDS = set(FaultKind)


def told_once(events: Iterable[Record]) -> Iterator[Record]:
    """Yield events, and a fault together with the wait that follows it as one.

    What may be tried again is held back until the next event, which says whether it is.
    """
    held: Record | None = None
    for event in events:
        if held is not None:
            retried = event["name"] == FAULT and event["data"].get("kind") == held["data"]["kind"]
            if retried and "detail" not in event["data"]:
                event = {**event, "data": {**held["data"], **event["data"]}}  # noqa: PLW2901
            else:
                yield held
        held = event if _may_be_tried_again(event) else None
        if held is None:
            yield event
    if held is not None:
        yield held


def _may_be_tried_again(event: Record) -> bool:
    data = event["data"]
    if event["name"] != FAULT or "retry" in data or data.get("kind") not in KINDS:
        return False
    return FaultKind(data["kind"]).transient


def as_it_stands(events: list[Record]) -> list[Record]:
    """Return the events of a run that has ended without the words that their end would follow."""
    last = max((event["id"] for event in events if event["name"] == OUTPUT), default=0)
    return [kept for event in events for kept in _without_more(event, last)]


def _without_more(event: Record, last: int) -> Iterator[Record]:
    data = event["data"]
    if event["name"] != OUTPUT or event["id"] == last or not data["text"].endswith(MORE):
        yield event
        return
    told = {name: said.removesuffix(MORE) for name, said in data.items() if name in SHOWN}
    if told["text"]:
        yield {**event, "data": {**data, **told}}


def not_told(error: str, run: Record) -> str:
    """Return an error without what the output of its run has told; its reason stays."""
    told = {line.rstrip() for part in run["logs"] for line in part["text"].splitlines()}
    reason, *rest = error.splitlines()
    return "\n".join([reason, *(line for line in rest if line.rstrip() not in told)])
