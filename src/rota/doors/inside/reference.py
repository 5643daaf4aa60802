"""The reference page of the verbs, made from their table."""

from __future__ import annotations

from rota.doors.inside.verbs import Offered, offered

INTRODUCTION = """\
What a program that works for a run may ask for, as MCP tools at `/mcp`:
[how to](../how-to/talking-back.md). A verb is a command of [the API](http.md) and has its fields,
which are told there; those in brackets may be left out. Of what is left out by a run, those with a
star mean its own task, run or conversation. `{"ok": true, …}` has the fields that the API gives.
"""


def verbs_page(made: str) -> str:
    """Return the page; `made` says how it is kept current."""
    rows = [_row(found) for found in offered(attempt=True).values()]
    table = "\n".join(["| verb | command | fields | |", "|---|---|---|---|", *rows])
    return f"# Verbs\n\n{made}\n\n{INTRODUCTION}\n{table}\n"


def _row(found: Offered) -> str:
    schema = found.schema(attempt=False)
    needed = set(schema.get("required", ()))
    fields = []
    for name in schema["properties"]:
        shown = f"`{name}`" + ("\\*" if name in found.verb.own else "")
        fields.append(shown if name in needed else f"[{shown}]")
    verb, command = found.verb, found.command
    return f"| `{verb.name}` | `{command.name}` | {' '.join(fields)} | {verb.about} |"
