"""Scripts: the words, the environment and the files that one is started with."""

import json
import subprocess
import sys

import pytest

from rota.agents.command.agent import ScriptAgent
from rota.errors import Invalid
from rota.model.agents import AgentSpec, OutputFormat, ProcessExit, SessionMode
from rota.model.attempts import Succeeded
from rota.ports.agent import AgentWorkspace

AGENT = ScriptAgent()
ROOM = AgentWorkspace(
    folder="/attempt",
    cwd="/work",
    home="/home/x",
    python="/usr/bin/python3",
    result="/artifacts/7/result-1",
    config='{"city": "Bremen"}',
    offered={"PATH": "/bin", "MY_TOKEN": "t", "DB_PASSWORD": "p", "A_SECRET": "s", "X_API_KEY": "k"},
    ids={"ROTA_RUN_ID": "7"},
)  # fmt: skip
HOSTILE = ("$(touch x)", "`x`", "; x", "{}", "{instructions}", "{{ x }}", "-rf", "--", "a\nb", "")


def prepared(*words, payload="null"):
    return AGENT.prepare(AgentSpec(program=words, instructions=payload), ROOM)


def test_a_program_is_told_everything_and_nothing_else():
    made = prepared("greet.py", "--politely", payload='{"name": "Ann"}')
    assert made.command.argv == ("greet.py", "--politely")
    assert made.command.stdin == b'{"name": "Ann"}'
    assert made.command.env == {
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "HOME": "/home/x",
        "ROTA_RUN_ID": "7",
        "ROTA_PAYLOAD_FILE": "/attempt/payload.json",
        "ROTA_RESULT_FILE": "/artifacts/7/result-1",
        "ROTA_CONFIG": '{"city": "Bremen"}',
    }
    assert [(file.name, file.content) for file in made.files] == [
        ("payload.json", b'{"name": "Ann"}')
    ]


def test_words_stay_as_they_are():
    assert prepared("p", *HOSTILE, payload=json.dumps(HOSTILE)).command.argv == ("p", *HOSTILE)


def test_a_function_is_called_by_the_rooms_python():
    made = prepared("reports.daily:Report.run", "--fast")
    assert made.command.argv == (
        "/usr/bin/python3", "/attempt/call.py", "reports.daily:Report.run",
        "/artifacts/7/result-1", "--fast",
    )  # fmt: skip
    assert [file.name for file in made.files] == ["payload.json", "call.py"]


@pytest.mark.parametrize("word", ["./a:b", "a:b/c", "a:", ":b", "a:b:c", "1:2", "a-b:c", "a:b\n"])
def test_what_is_no_function_is_a_program(word):
    assert prepared(word).command.argv == (word,)


def test_a_script_has_no_wishes_of_an_agent():
    with pytest.raises(Invalid, match="session"):
        AGENT.check(AgentSpec(program=("p",), instructions="null", session=SessionMode.SHARED))


CASES = {
    "value": ("def go(given):\n    return {'given': given}", '{"given": [1]}', 0),
    "nothing": ("def go(given):\n    pass", None, 0),
    "raises": ("def go(given):\n    raise KeyError('x')", None, 1),
    "exits": ("import sys\ndef go(given):\n    sys.exit(4)", None, 4),
    "no json": ("def go(given):\n    return object()", None, 1),
    "no function": ("def other(given):\n    pass", None, 1),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_function_returns_is_left_in_the_result_file(tmp_path, case):
    source, result, code = CASES[case]
    (call,) = [file for file in prepared("job:go").files if file.name == "call.py"]
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "job.py").write_text(source)
    (tmp_path / "call.py").write_bytes(call.content)
    words = [sys.executable, "-S", str(tmp_path / "call.py"), "job:go", str(tmp_path / "result")]
    done = subprocess.run(
        words, cwd=tmp_path / "work", input=b"[1]", capture_output=True, check=False, timeout=30
    )
    assert done.returncode == code, done.stderr
    left = (tmp_path / "result").read_text() if (tmp_path / "result").exists() else None
    assert left == result or (case == "no json" and code)


OWN_WORDS = [
    "curl: (22) The requested URL returned error: 403",
    "KeyError: 'billing_address'",
    "HTTP 429 Too Many Requests",
    "ssh: forbidden by the usage policy",
    "error: 500 rows are too many",
]


@pytest.mark.parametrize("words", OWN_WORDS)
def test_what_a_failing_script_says_is_not_taken_for_the_words_of_a_provider(words):
    """It is tried again as its task says, and nobody is told to buy credit."""
    outcome = ended(ProcessExit(code=1, stderr_tail=words.encode())).outcome
    assert (outcome.code, outcome.retryable) == ("other", True)
    assert words in outcome.message
    line = json.dumps({"rota": "error", "message": words}).encode() + b"\n"
    assert ended(ProcessExit(code=0), line).outcome.code == "other"


def test_a_script_may_say_itself_of_which_class_its_error_is():
    line = b'{"rota": "error", "class": "rate_limit", "message": "the bank is closed"}\n'
    assert ended(ProcessExit(code=0), line).outcome.code == "rate_limit"


def test_a_script_that_ran_out_of_memory_is_known_by_its_words():
    assert ended(ProcessExit(code=1, stderr_tail=b"MemoryError")).outcome.code == "out_of_memory"


def test_a_result_that_tells_of_an_error_is_a_result():
    seen = b"API Error: 500 of the weather service, twice\n"
    assert ended(ProcessExit(code=0), seen).outcome == Succeeded(
        result=json.dumps(seen.decode().strip())
    )


def ended(end, *lines):
    reader = AGENT.reader(
        AgentSpec(program=("p",), instructions="null", output=OutputFormat.LAST_LINE), ROOM
    )
    for line in lines:
        reader.feed(line)
    return reader.end(end)
