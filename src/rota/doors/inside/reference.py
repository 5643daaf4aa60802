"""The reference page of the verbs, made from their table."""

from __future__ import annotations

from rota.doors.inside.verbs import Offered, offered

INTRODUCTION = """\
What a program that works for a run may ask for, as MCP tools at `/mcp`:
[how to](../how-to/talking-back.md). A verb is a command of [the API](http.md) and has its fields,
which are told there; those in brackets may be left out. Of what is left out by a run, those with a
star mean its own task, run or conversation. `{"ok": true, …}` has the fields that the API gives.
"""


OUTSIDE = """\
Clients that come with a key, through `rota mcp` or to `/mcp`, have the verbs that need no run, as
far as the scopes of their key go, and these beside, which no run has:
"""


def verbs_page(made: str) -> str:
    """Return the page; `made` says how it is kept current."""
    inside = offered(attempt=True)
    outside = [found for name, found in offered(attempt=False).items() if name not in inside]
    tables = f"{_table(list(inside.values()))}\n\n{OUTSIDE}\n{_table(outside)}"
    return f"# Verbs\n\n{made}\n\n{INTRODUCTION}\n{tables}\n"


def _table(offers: list[Offered]) -> str:
    rows = [_row(found) for found in offers]
    return "\n".join(["| verb | command | fields | |", "|---|---|---|---|", *rows])


def _row(found: Offered) -> str:
    schema = found.schema(attempt=False)
    needed = set(schema.get("required", ()))
    fields = []
    for name in schema["properties"]:
        shown = f"`{name}`" + ("\\*" if name in found.verb.own else "")
        fields.append(shown if name in needed else f"[{shown}]")
    verb, command = found.verb, found.command
    return f"| `{verb.name}` | `{command.name}` | {' '.join(fields)} | {verb.about} |"
