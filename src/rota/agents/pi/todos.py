"""The list that pi keeps of its work: it has none by itself, so Rota hands it a tool for one."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rota.agents.kit.lines import Json, items
from rota.agents.kit.todos import Todos, todo
from rota.model.said import Progress

TOOL = "rota_todos"
EXTENSION = "todos.js"
"""The file of the attempt in which pi finds the tool."""
STATUSES = ("pending", "in_progress", "completed")
MOST, LONGEST = 100, 200
"""Entries, and characters of one: a line of pi's stream repeats all of them."""
DECLARED = {
    "name": TOOL,
    "label": "Todos",
    "description": "Write down what there is to do, and how each of it stands. Call it at the "
    "beginning of work that has several steps, and again with the whole list whenever a step "
    "begins or is done: by this list people see how far you are.",
    "promptSnippet": "Keep the list of steps by which people see how far you are",
    "parameters": {
        "type": "object",
        "required": ["todos"],
        "properties": {
            "todos": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST,
                "items": {
                    "type": "object",
                    "required": ["content", "status"],
                    "properties": {
                        "content": {"type": "string", "minLength": 1, "maxLength": LONGEST},
                        "status": {"type": "string", "enum": STATUSES},
                    },
                },
            }
        },
    },
}


def extension() -> bytes:
    """Return the program by which pi learns of the tool; all it does is to say the list again."""
    return f"""\
export default (pi) => pi.registerTool({{
  ...{json.dumps(DECLARED)},
  execute: async (_call, given) => ({{
    content: [{{ type: "text", text: "Noted." }}],
    details: given,
  }}),
}});
""".encode()


class ToolTodos:
    """What there is to do, from uses of the tool that were carried out."""

    def __init__(self) -> None:
        self._todos = Todos()

    def result(self, record: Json) -> Iterator[Progress]:
        """Yield how far it is, if the end of a tool's use has changed that."""
        if record.get("toolName") == TOOL and record.get("isError") is not True:
            listed = items(record, "result", "details", "todos")
            self._todos.put_all((str(nth), todo(one)) for nth, one in enumerate(listed))
            yield from self._todos.progress()
