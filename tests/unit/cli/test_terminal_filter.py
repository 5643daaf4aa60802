"""Whatever stands on record, no command writes what a terminal obeys or does not show."""

from __future__ import annotations

import ast
import io
import json
import sqlite3
import sys
import unicodedata
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from typer.main import get_command

import rota.cli
from rota.cli.command_line import build_app
from rota.cli.main import main
from rota.cli.terminal_filter import VisibleStream, painted, visible_output
from rota.model.text import COLOUR, visible, visible_coloured

HOSTILE = (
    "a\x9b31mb\x9d0;t\x9cc\x1b[2Jd\x1b]0;t\x07e\x7ff\u202eg\u2066h\u200bi\u2060j\ufeffk\u2028l\xadm"
    "\x85n\ue000o\U000e0041p\U0010fffdq\u200fr\rs\x08t"
)
LEGIBLE = "Grüße 👩‍👩‍👧 ☎️ می‌خواهم हिन्दी e\u0301"
JOINERS = "\u200c\u200d"
ALLOWED = set("\n\t" + JOINERS)
HIDDEN = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
NUMBER_SIGNS = {"\u06dd", "\u070f", "\u08e2", "\U000110bd", "\U000110cd"} | set(
    map(chr, (*range(0x600, 0x606), 0x890, 0x891))
)
"""They are formats by name, and can be seen."""

TEXTS = {
    "attempts": ["worker", "error"],
    "deliveries": ["target", "body", "error"],
    "homes": ["host"],
    "keys": ["name", "created_by"],
    "limits": ["key"],
    "messages": ["sender", "body"],
    "preferences": ["target"],
    "questions": ["question", "context", "answered_by", "fallback"],
    "readings": ["host"],
    "requests": ["caller"],
    "runs": ["error", "error_code"],
    "schedules": ["note"],
    "seen": ["provider", "item"],
    "session_runs": ["said"],
    "sessions": ["name", "title"],
    "state": ["updated_by"],
    "tasks": ["title", "disabled_reason"],
    "threads": ["title", "trigger_word"],
    "workers": ["host"],
}
"""What programs, members and strangers may have chosen, whatever it is held to when it is made."""
VALUES = {
    "runs": ["payload", "result"],
    "state": ["value"],
    "seen": ["data"],
    "requests": ["answer"],
}
"""The same as JSON."""

READING = {
    "artifacts": ["artifacts", "1"],
    "attach": ["attach", "1"],
    "budget show": ["budget", "show"],
    "check": ["check"],
    "doctor": ["doctor"],
    "key list": ["key", "list"],
    "limit list": ["limit", "list"],
    "logs": ["logs", "1"],
    "ls": ["ls"],
    "machine agents": ["machine", "agents"],
    "machine history": ["machine", "history"],
    "machine list": ["machine", "list"],
    "messages": ["messages", "telegram:chat:42"],
    "next": ["next", "every 5 minutes"],
    "notify list": ["notify", "list"],
    "questions": ["questions"],
    "requests": ["requests"],
    "run": ["run", "1"],
    "runs": ["runs"],
    "schedule list": ["schedule", "list", "greet"],
    "secret list": ["secret", "list"],
    "seen show": ["seen", "show", "greet"],
    "session list": ["session", "list"],
    "session search": ["session", "search", "a"],
    "session show": ["session", "show", "1"],
    "space list": ["space", "list"],
    "sql": ["sql", "select title, name from tasks"],
    "state get": ["state", "get", "greet", "note"],
    "state list": ["state", "list", "greet"],
    "status": ["status"],
    "task list": ["task", "list"],
    "task next": ["task", "next", "greet"],
    "task show": ["task", "show", "greet"],
    "thread list": ["thread", "list"],
    "thread show": ["thread", "show", "telegram:chat:42"],
    "verify": ["verify"],
    "watch": ["watch", "--once"],
    "why": ["why", "greet"],
    "worker list": ["worker", "list"],
}
TELLING = {
    "logs", "ls", "messages", "questions", "run", "runs", "session list", "session show", "sql",
    "state get", "state list", "task show", "thread list", "watch", "notify list", "key list",
}  # fmt: skip
"""Those of which it is known that they tell what somebody has chosen."""
WRITING = {
    "add", "answer", "apply", "backfill", "backup", "budget set", "cancel", "key create",
    "key revoke", "limit remove", "limit set", "notify remove", "notify set", "once", "pause-all",
    "restore", "resume-all", "retry", "say", "secret remove", "secret set", "seen mark",
    "service install", "service start", "service status", "service stop", "session archive",
    "session clear", "session resume", "space create", "space set", "start", "state delete",
    "state set", "stop", "task create", "task delete", "task disable", "task edit", "task enable",
    "task pause", "task run", "thread cancel", "thread register",
}  # fmt: skip
"""They change something; what they say of it passes the same edge."""
ELSEWHERE = {
    "completion": "writes a script that is part of Rota",
    "events": "needs a daemon; its lines are those of `logs`",
    "mcp": "speaks a protocol of machines, byte for byte",
    "open": "writes an address",
    "service logs": "shows lines of the log, which were made visible when they were written",
    "up": "needs the terminal; what it writes is its log, see test_logging.py",
}
BENEATH = {
    "runs.py": "writes a file as it is to standard output, if asked to",
    "attach.py": "lends the terminal to tmux and to other programs",
    "daemon.py": "hands the log its stream, which paints",
    "mcp.py": "speaks a protocol of machines",
    "terminal_filter.py": "the edge itself",
    "display.py": "paints tables, and colours of programs",
    "status.py": "paints the screen",
}
"""The modules that write beside the edge, and why."""


class Tty(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def commands(command, path=()):
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))
    if not getattr(command, "commands", {}):
        yield " ".join(path)


def dangerous(text):
    return sorted({c for c in text if unicodedata.category(c) in HIDDEN} - ALLOWED - NUMBER_SIGNS)


def hostile_event(data):
    """Return the data of an event with words of a program; what happened stays what it was."""
    chosen = {name: HOSTILE for name in data if name in {"text", "message", "error", "detail"}}
    return {**data, **chosen, "hostile": HOSTILE}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a home on whose record every text is hostile that somebody may choose."""
    folder = tmp_path_factory.mktemp("hostile") / "home"
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        for line in (
            ["task", "create", "greet", "--call", "rota.samples:hello", "--every", "1h"],
            ["task", "create", "ask", "--call", "rota.samples:approve"],
            ["run", "greet"],
            ["run", "ask"],
            ["once"],
            ["run", "greet"],
            ["thread", "register", "telegram:chat:42", "--title", LEGIBLE],
            ["say", "telegram:chat:42", "good day"],
            ["key", "create", "laptop"],
            ["limit", "set", "group", "printers", "--cap", "3"],
            ["notify", "set", "log:here"],
            ["state", "set", "greet", "note", '{"text": "x"}'],
            ["seen", "mark", "greet", "item"],
        ):
            assert main([*line, "--home", str(folder)]) == 0, (line, said.getvalue())
    with sqlite3.connect(folder / "rota.db") as db:
        _fill(db)
        for table, columns in TEXTS.items():
            for column in columns:
                db.execute(f"update or ignore {table} set {column} = ?", [HOSTILE])  # noqa: S608
                counted = f"select count(*) from {table} where {column} = ?"  # noqa: S608
                assert db.execute(counted, [HOSTILE]).fetchone()[0], (table, column)
        for table, columns in VALUES.items():
            for column in columns:
                db.execute(f"update {table} set {column} = ?", [json.dumps({"x": HOSTILE})])  # noqa: S608
        for number, data in db.execute("select id, data from events").fetchall():
            told = json.dumps(hostile_event(json.loads(data)))
            db.execute("update events set data = ? where id = ?", [told, number])
        shown = {"stream": "out", "at": 0, "text": HOSTILE, "ansi": f"\x1b[31mred\x1b[0m{HOSTILE}"}
        db.execute(
            "insert into events (at, name, space_id, task_id, run_id, data)"
            " select at, 'run.output', space_id, task_id, run_id, ? from events"
            " where run_id = 1 limit 1",
            [json.dumps(shown)],
        )
    db.close()
    return folder


def _fill(db):
    at = db.execute("select max(at) from events").fetchone()[0]
    thread = db.execute("select thread from messages").fetchone()[0]
    db.execute(
        "insert into sessions (id, space_id, thread, task_id, agent, name, title, started_at,"
        " used_at) values (1, 1, ?, 1, 'claude', 'n', 't', ?, ?)",
        [thread, at, at],
    )
    db.execute("insert into session_runs values (1, 1, 1, ?, 'said')", [at])
    db.execute("insert into homes values ('h', 'host', ?)", [at + 10**10])
    db.execute(
        "insert into readings (home, at, host, running, agents, panes, spaces)"
        " values ('h', ?, 'host', 0, 0, 0, 1)",
        [at],
    )
    db.execute(
        "insert or ignore into workers values ('w', 'h', 'host', 1, 'work', '[]', 1, ?, ?, ?, 0)",
        [at, at, at + 10**10],
    )
    db.execute(
        "insert into deliveries (space_id, run_id, channel, target, body, dedupe_key, state,"
        " available_at, created_at) values (1, 1, 'log', 't', 'b', 'k', 'dead', ?, ?)",
        [at, at],
    )


def ran(home, words, *more, terminal=False):
    """Return what a command writes to standard output and standard error."""
    kind = Tty if terminal else io.StringIO
    with redirect_stdout(kind()) as out, redirect_stderr(kind()) as err:
        main([*words, *more, "--home", str(home)])
    return out.getvalue(), err.getvalue()


def test_every_command_is_known_here():
    named = {*READING, *WRITING, *ELSEWHERE}
    assert set(commands(get_command(build_app()))) == named
    assert len(named) == len(READING) + len(WRITING) + len(ELSEWHERE)


@pytest.mark.parametrize("name", READING)
@pytest.mark.parametrize("way", ["plain", "json", "terminal"])
def test_nothing_is_written_that_a_terminal_obeys_or_does_not_show(home, name, way):
    more = ["--json"] if way == "json" else []
    out, err = ran(home, READING[name], *more, terminal=way == "terminal")
    assert "unexpected" not in err
    shown = COLOUR.sub("", out + err) if way == "terminal" else out + err
    assert dangerous(shown) == []
    if name in TELLING and way != "terminal":  # where a table may have shortened it
        assert "\\u200b" in out, out
    if way == "json" and out:
        assert HOSTILE in str_of(out) or name not in TELLING


def str_of(out):
    """Return all texts of what is written as JSON, in one document or in lines."""
    try:
        found = [json.loads(out)]
    except ValueError:
        found = [json.loads(line) for line in out.splitlines()]
    texts, left = [], found
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += [*one, *one.values()]
        elif isinstance(one, list):
            left += one
        elif isinstance(one, str):
            texts.append(one)
    return "\n".join(texts)


def test_colours_of_programs_stay_on_a_terminal_and_nothing_else(home):
    told, _ = ran(home, ["logs", "1"], terminal=True)
    assert "\x1b[31mred\x1b[0m" in told
    assert dangerous(COLOUR.sub("", told)) == []
    piped, _ = ran(home, ["logs", "1"])
    assert "\x1b" not in piped


def test_errors_are_visible_too(home):
    for words in (["task", "show", HOSTILE], [HOSTILE], ["logs", "1", HOSTILE], ["--" + HOSTILE]):
        for more in ([], ["--json"]):
            out, err = ran(home, words, *more)
            assert err
            assert dangerous(out + err) == []


def test_what_is_legible_stays_as_it_is(tmp_path):
    ran(tmp_path, ["task", "create", "x", "--call", "rota.samples:hello", "--title", LEGIBLE])
    for more in ([], ["--json"]):
        out, _ = ran(tmp_path, ["task", "show", "x"], *more)
        assert LEGIBLE in out


def test_each_character_is_either_shown_or_escaped_as_json_does():
    for number in range(sys.maxunicode + 1):
        sign = chr(number)
        hidden = unicodedata.category(sign) in HIDDEN and sign not in ALLOWED | NUMBER_SIGNS
        shown = visible(sign)
        assert (shown != sign) >= hidden, hex(number)
        assert json.loads(f'"{shown}"') == sign if shown != sign else True
    assert visible("a\r\nb\n") == "a\r\nb\n"
    assert visible("a\rb") == "a\\u000db"
    assert visible_coloured("\x1b[1mx\x1b[2Jy\x1b[0m") == "\x1b[1mx\\u001b[2Jy\x1b[0m"


def test_streams_are_put_back_and_wrapped_once():
    with redirect_stdout(io.StringIO()) as beneath:
        with visible_output(), visible_output():
            sys.stdout.write("\u202e\n")
            assert isinstance(sys.stdout, VisibleStream)
            assert painted(sys.stdout) is beneath
            sys.stdout.writelines(["\x9b", "x"])
        assert sys.stdout is beneath
    assert beneath.getvalue() == "\\u202e\n\\u009bx"


def test_only_these_modules_write_beside_the_edge():
    folder = Path(rota.cli.__file__).parent
    found = {path.name for path in folder.glob("*.py") if _writes_beneath(path.read_text())}
    assert found == set(BENEATH)


def _writes_beneath(source):
    """Whether a module names what leads past the edge: a stream's bytes, a number, a console."""
    named = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    called = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    return bool(
        named & {"buffer", "__stdout__", "__stderr__", "posix_spawn"}
        or called & {"painted", "Console", "lend"}
    )


@pytest.mark.parametrize("sign", ["\u202e", "\u2067", "\x9b", "\u200b", "\x1b", "\ufeff", "\u2028"])
def test_titles_and_names_that_hide_something_are_refused_in_one_sentence(rota, sign, tmp_path):
    rota.ok("task", "create", "x", "--call", "rota.samples:hello", "--title", LEGIBLE)
    rota.ok("thread", "register", "web:7")
    name = f"a{sign}b"
    file = tmp_path / "tasks.toml"
    file.write_text(f"[tasks.y]\ncall = 'rota.samples:hello'\ntitle = {json.dumps(name)}\n")
    for words in (
        ["task", "create", "y", "--call", "rota.samples:hello", "--title", name],
        ["task", "create", name, "--call", "rota.samples:hello"],
        ["task", "edit", "x", "--title", name],
        ["task", "edit", "x", "--group", name],
        ["thread", "register", "web:7", "--title", name],
        ["thread", "register", f"web:{name}"],
        ["thread", "register", "web:7", "--trigger", name],
        ["say", "web:7", "x", "--sender", name],
        ["space", "create", name],
        ["key", "create", name],
        ["state", "set", "x", name, "1"],
        ["seen", "mark", "x", name],
        ["notify", "set", f"log:{name}"],
    ):
        assert sign not in rota.refused(*words), words
    answer = rota("apply", str(file))
    assert answer.code == 2
    assert "title" in answer.err
    assert sign not in answer.out + answer.err
    assert rota.json("task", "list")["tasks"][0]["title"] == LEGIBLE
