"""One name, one subject: modules are nouns of the field, and a public class name exists once."""

import ast
import re
from collections import defaultdict
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "rota"
MODULES = sorted(path for path in SRC.rglob("*.py") if "testing" not in path.parts)
NOUNS = {"logging", "settings"}
"""Modules whose names end like verbs and are nouns of the field."""
LAYERS = {
    "",
    "model",
    "store",
    "rules",
    "flow",
    "runtime",
    "commands",
    "agent_api",
    "api",
    "app",
    "cli",
    "ports",
}
"""Folders in which one subject may have a module each, under one name."""
ROOMS = {
    "agent",
    "reader",
    "executor",
    "plugin",
    "entrypoint",
    "seccomp",
    "channel",
    "runner",
    "database",
    "transactions",
    "connection",
    "backup",
    "sql_console",
}
"""Files that stand under the same name in each folder of a room, or for each database."""
PROCESSES = {"client", "secrets", "file_modes"}
"""The daemon's client of the keeper and of the gateway; secrets, which the gateway holds; modes of a home and of a database."""


def test_no_module_is_named_by_a_verb_or_an_adverb():
    found = {path.stem for path in MODULES if re.search(r"(ing|ly)$", path.stem)}
    assert found <= NOUNS


def test_a_module_name_stands_for_one_subject():
    folders = defaultdict(list)
    for path in MODULES:
        if path.stem != "__init__":
            folders[path.stem].append(path.relative_to(SRC).parts[0] if path.parent != SRC else "")
    for name, where in folders.items():
        if name in ROOMS | PROCESSES or len(where) == 1:
            continue
        assert set(where) <= LAYERS, (name, where)
        assert len(where) == len(set(where)) or name == "sql_console", (name, where)


def test_a_public_class_name_exists_once():
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SRC)))
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice
