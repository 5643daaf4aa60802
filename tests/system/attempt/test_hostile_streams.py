"""Whatever a program does to its streams has one defined outcome, and leaves nobody behind."""

from __future__ import annotations

from rota.model.text import MORE
from tests.system.attempt.test_daemon_restarts import ended

LONGEST_EVENT = 64 * 1024
MOST_TEXT = 1024 * 1024

NO_NEWLINE = """
import os, time
end = time.monotonic() + 60
while time.monotonic() < end:
    os.write(1, b"x" * 4096)
    time.sleep(0.0005)
"""
INVALID = r"""
import os
os.write(1, b"\xff\xfe broken \xc3\n\xed\xa0\x80half\n")
"""
SEQUENCES = r"""
import os
os.write(1, b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]52;c;aGk=\x07\x1b[2Jplain\x00\x07\r\nend\n")
"""
LONG_LINES = """
import sys
sys.stdout.write("a" * 200_000 + "\\n" + "b" * 70_000 + "\\nend\\n")
"""
CLOSED = """
import os, time
print("first", flush=True)
os.close(1)
os.write(2, b"still here\\n")
time.sleep(0.3)
"""
LEFT_OPEN = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)", sys.argv[1]])
print("gone", flush=True)
"""
DEAF = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + 60
while time.monotonic() < end:
    os.write(1, b"still writing\\n")
    time.sleep(0.01)
"""
PROGRAMS = {
    "no_newline": NO_NEWLINE,
    "invalid": INVALID,
    "sequences": SEQUENCES,
    "long_lines": LONG_LINES,
    "closed": CLOSED,
    "left_open": LEFT_OPEN,
    "deaf": DEAF,
}
TIMEOUTS = {"no_newline": "2s", "deaf": "2s"}


class Outcomes:
    """What became of each program, one daemon for all of them."""

    def __init__(self, kept):
        self.kept = kept
        numbers = {}
        for name, text in PROGRAMS.items():
            (kept.work / f"{name}.py").write_text(text)
            more = {"timeout": TIMEOUTS[name]} if name in TIMEOUTS else {}
            kept.create(name, "python3", f"{name}.py", kept.token, **more)
        kept.up()
        for name in PROGRAMS:
            numbers[name] = kept.json("run", name)["run"]
        self.runs = {name: kept.until(n, ended, seconds=60) for name, n in numbers.items()}

    def __call__(self, name):
        run = self.runs[name]
        return run["state"], run["result"], run["error_code"]

    def texts(self, name, stream="out"):
        return [part["text"] for part in self.runs[name]["logs"] if part["stream"] == stream]


def test_each_stream_has_its_outcome(kept):
    outcome = Outcomes(kept)

    assert outcome("no_newline") == ("failed", None, "timeout")
    texts = outcome.texts("no_newline")
    assert texts
    notes = [text for text in texts if text.startswith("…")]
    assert notes[0] == MORE
    assert {letter for text in texts if text not in notes for letter in text} == {"x"}
    assert max(map(len, texts)) <= LONGEST_EVENT
    assert sum(map(len, texts)) <= 2 * (MOST_TEXT + LONGEST_EVENT)

    state, result, _ = outcome("invalid")
    assert state == "succeeded"
    assert "\N{REPLACEMENT CHARACTER}" in result
    assert result.endswith("half")

    assert outcome("sequences") == ("succeeded", "end", None)
    (text,) = outcome.texts("sequences")
    assert text.split() == ["red", "plain", "end"]
    assert text.isprintable() or set(text) - {"\n"} <= {c for c in text if c.isprintable()}

    assert outcome("long_lines") == ("succeeded", "end", None)
    assert max(map(len, outcome.texts("long_lines"))) <= LONGEST_EVENT
    assert sum(text.count("a") for text in outcome.texts("long_lines")) == 200_000
    assert sum(text.count("b") for text in outcome.texts("long_lines")) == 70_000

    assert outcome("closed") == ("succeeded", "first", None)
    assert outcome.texts("closed", "err") == ["still here"]

    assert outcome("left_open") == ("succeeded", "gone", None)

    assert outcome("deaf") == ("failed", None, "timeout")
    assert outcome.texts("deaf")[0].startswith("still writing")

    assert kept.living() == []
    assert kept.rota("verify").returncode == 0


def test_one_that_writes_for_ever_after_a_stop_is_ended_all_the_same(kept):
    (kept.work / "deaf.py").write_text(DEAF)
    kept.create("deaf", "python3", "deaf.py", kept.token)
    kept.up()
    number = kept.json("run", "deaf")["run"]
    kept.until(number, lambda run: run["logs"])
    kept.json("cancel", str(number))
    assert kept.until(number, ended)["state"] == "cancelled"
    assert kept.living() == []
