"""Nothing that a member, an agent or a page writes costs the event loop more than its length.

Every regular expression of the source is tried with texts made for it, and its steps are counted:
a text of twice the length takes about twice the steps. What reads foreign texts is fed with the
worst of its largest allowed size in a process that may use a few seconds of the processor; what
takes the square of such a size would need minutes.
"""

from __future__ import annotations

import ast
import json
import os
import re
import resource
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import import_module

import pytest

from rota.agent_api.mailbox.folder import CommandRejected, read_object
from rota.agents.command.reader import CommandReader
from rota.agents.shared.result import public_answer
from rota.agents.shared.stream import TextExcerpt, detail, encode_text, parse
from rota.commands.tasks import make_slug
from rota.errors import Invalid
from rota.flow.attempt.output import MOST_LINES, OutputParser, clean_for_display
from rota.flow.attempt.programs import PART
from rota.model.agents import AgentAnswer, OutputFormat
from rota.model.attempts import MAX_RESULT_BYTES, OutputStream
from rota.model.text import clean, coloured
from rota.rules.approvals import QuestionAuthor, action_text, question_in
from rota.rules.checks import strip_fence
from rota.rules.json_schema import check_schema
from rota.rules.messages import as_mail
from rota.rules.notifications import public_result, public_text
from rota.timing.natural_language import MAX_TEXT, read
from rota.timing.zones import zone
from tests.architecture.regex_steps import Steps, TooManySteps, attacks
from tests.architecture.test_house import MODULES, SRC, named

SIZE = 300
SQUARE = 3.2
"""Twice the length takes the square if it takes so many times the steps, or more."""
FEW = 3_000
SEARCHING = frozenset({"search", "finditer", "findall", "sub", "subn", "split"})
AT_ONE_PLACE = frozenset({"match", "fullmatch"})
SHORT = {
    "rota.timing.natural_language._SEPARATOR": "a phrase of at most 1,000 characters without double spaces",
    "src/rota/executors/tmux/executor.py:66": "the version that tmux tells",
    "rota.store.sql_files._NAME": "Rota's own files",
}
"""Patterns that take the square of a text which is short, or which nobody else writes."""
FENCE = re.compile(r"\A\s*```\w*\n(.*)\n\s*```\s*\Z", re.DOTALL)
"""What was once looked for in answers: 80,000 empty lines took it six seconds."""


@cache
def trees():
    return {path: ast.parse(path.read_text()) for path in MODULES if "testing" not in path.parts}


def module_of(path):
    return ".".join(("rota", *path.relative_to(SRC).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


@cache
def ways():
    """Return how patterns are used, by their names; a private one by its module as well."""
    found = {}
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in SEARCHING | AT_ONE_PLACE:
                of = node.value
                name = getattr(of, "id", None) or getattr(of, "attr", None) or ""
                known = f"{module_of(path)}.{name}" if name.startswith("_") else name
                found.setdefault(known, set()).add(node.attr)
    return found


def constants():
    """Yield the patterns that modules have, each with where it stands and how it is used."""
    known = set()
    for path in trees():
        module = import_module(module_of(path))
        for name, value in list(vars(module).items()):
            own = isinstance(value, type) and value.__module__ == module.__name__
            inner = vars(value).items() if own else ()
            for each, pattern in ((name, value), *inner, *((name, one) for one in held_in(value))):
                if isinstance(pattern, re.Pattern) and pattern not in known:
                    known.add(pattern)
                    where = f"{module.__name__}.{each}"
                    yield where, pattern, ways().get(where) or ways().get(each) or SEARCHING


def held_in(value):
    if isinstance(value, (tuple, list, frozenset)):
        for one in value:
            yield from held_in(one) if isinstance(one, tuple) else [one]


def literals():
    """Yield the patterns that are written where they are used."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of, way = getattr(node.func.value, "id", None), node.func.attr
                text = node.args[0] if node.args else None
                if (
                    of == "re"
                    and way in SEARCHING | AT_ONE_PLACE
                    and isinstance(text, ast.Constant)
                ):
                    flags = re.IGNORECASE if "IGNORECASE" in ast.dump(node) else 0
                    yield f"{named(path)}:{node.lineno}", re.compile(text.value, flags), {way}


PATTERNS = {where: (pattern, used) for where, pattern, used in (*constants(), *literals())}


def worst(pattern, used):
    """Return the input for which a pattern takes the square of its length, if there is one."""
    steps = Steps(pattern)
    everywhere, whole = bool(used & SEARCHING), "fullmatch" in used

    def count(begin, pump, end, size):
        text = begin + pump * (size // len(pump)) + end
        return steps.of(text, everywhere=everywhere, whole=whole)

    for attack in attacks(steps.nodes):
        try:
            once = count(*attack, SIZE)
            if once > FEW and count(*attack, 2 * SIZE) > SQUARE * once:
                return attack
        except TooManySteps:
            return attack
    return None


@pytest.fixture
def _deep():
    """Let the counting recurse; what the parsers of JSON may do of that is bounded by Python."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("_deep")
def test_a_pattern_that_takes_the_square_is_noticed():
    assert worst(FENCE, {"match"}) is not None
    assert worst(re.compile(r"\s+$"), {"search"}) is not None
    assert worst(re.compile(r"(a|a)*b"), {"match"}) is not None
    assert worst(re.compile(r"\s++x"), {"match"}) is None


@pytest.mark.usefixtures("_deep")
@pytest.mark.parametrize("where", sorted(PATTERNS.keys() - SHORT.keys()))
def test_no_pattern_takes_more_than_its_text_is_long(where):
    assert worst(*PATTERNS[where]) is None


@pytest.mark.usefixtures("_deep")
def test_exceptions_are_patterns_that_need_to_be_one():
    assert [
        where for where in SHORT if where not in PATTERNS or worst(*PATTERNS[where]) is None
    ] == []


PUMPS = (
    "\n", " ", "\t", "\r", "`", "`a`", "```\n", "```a\n", "~~~\n", '"', "“", "„", "«»", "'a", "' ",
    ">\n", "> ", "\n ", '"\n\n', 'reply "yes" ', "[ZUBOT_CONTROL_REQUEST]",
    "[ZUBOT_CONTROL_REQUEST]{}[/ZUBOT_CONTROL_REQUEST]", "<internal>", "<internal ", "< ", "[", "{}",
    '{"a":', '["a",', "\u0327\u0300", "\x1b[m", "\x1b]", "\x1b[0", "please confirm ", "a", "{\n",
    '{"rota":"text","text":"a"}\n', "\nACTION", "bearer ", "sk-", "limit reached|", "1,",
)  # fmt: skip
MEBIBYTE = 1 << 20
ASKER = QuestionAuthor(run=1, attempt=1, task="t", space="s")


def heard(text):
    OutputParser(CommandReader(OutputFormat.TEXT)).take(OutputStream.OUT, text.encode(), last=True)


def shown(text):
    OutputParser(CommandReader(OutputFormat.TEXT)).take_part(OutputStream.OUT, text.encode())
    clean_for_display(text.encode())


def gathered(text):
    both = TextExcerpt()
    both.add(text)
    both.text()


def refused(call, *told):
    with suppress(Invalid, CommandRejected, ValueError, RecursionError):
        call(*told)


READERS = {
    "a question in an answer": (MAX_RESULT_BYTES, lambda text: question_in(text, ASKER, 0)),
    "a block in an answer": (MAX_RESULT_BYTES, strip_fence),
    "a mail in an answer": (MAX_RESULT_BYTES, lambda text: as_mail(json.dumps(text))),
    "internal text": (MAX_RESULT_BYTES, lambda text: public_text(f"<internal>x</internal>{text}")),
    "internal data": (MAX_RESULT_BYTES, lambda text: public_result(json.dumps([text]))),
    "the line of an agent": (MEBIBYTE, lambda text: parse(b'{"a":' + text.encode())),
    "an answer": (MEBIBYTE, lambda text: public_answer(AgentAnswer(text=f"NO_ACTION:{text}"))),
    "an error": (MEBIBYTE, detail),
    "a long answer": (MEBIBYTE, encode_text),
    "a long output": (MEBIBYTE, gathered),
    "text for a terminal": (MEBIBYTE, clean),
    "text with colours": (MEBIBYTE, coloured),
    "a part of an output": (PART, heard),
    "a part of a line": (64 * 1024, shown),
    "an action": (
        MEBIBYTE,
        lambda text: refused(lambda: action_text(text, run=1, attempt=1, task="t", space="s")),
    ),
    "a task without a name": (MEBIBYTE, make_slug),
    "a command in a mailbox": (MEBIBYTE, lambda text: refused(read_object, text.encode())),
    "a rule": (MAX_TEXT, lambda text: refused(_read_rule, text)),
    "a zone": (64, lambda text: refused(zone, text)),
    "a schema": (MEBIBYTE, lambda text: refused(check_schema, {"enum": list(text)})),
}
PROCESSOR_SECONDS = 10
"""For all texts of one reader: they take less than two, and the square of one takes minutes."""


def _read_rule(text):
    read(text, now=datetime(2026, 1, 1, tzinfo=UTC))


def ends(most, reading, pumps=PUMPS, seconds=PROCESSOR_SECONDS):
    """Return how a process ends that reads texts, whose processor time is bounded."""
    child = os.fork()
    if not child:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            for pump in pumps:
                reading(pump * (most // len(pump.encode())))
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("reader", READERS)
def test_foreign_text_of_the_largest_size_is_read_in_bounded_work(reader):
    assert ends(*READERS[reader]) == 0


def test_a_reader_that_takes_the_square_is_ended():
    assert os.WIFSIGNALED(
        ends(MAX_RESULT_BYTES, lambda text: FENCE.match(f"```\n{text}"), "\n", seconds=3)
    )


@pytest.mark.parametrize("line", [b"\n", b"a\n", b"{\n", b'{"rota":"tool","name":"a"}\n'])
def test_of_many_lines_few_are_heard_before_others_have_their_turn(line):
    hearing = OutputParser(CommandReader(OutputFormat.TEXT))
    data = line * (2 * MOST_LINES + 9)
    lines = 0
    while part := hearing.take(OutputStream.OUT, data[hearing.at(OutputStream.OUT) :], last=True):
        read_now = data[part.start : part.end].count(b"\n")
        assert read_now <= MOST_LINES
        lines += read_now
    assert lines == data.count(b"\n")
